"""An operator's schema and reference, read from a type-hinted Python function without running it."""
