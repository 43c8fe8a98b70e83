"""Text in, plan out: reading schemas and projects, rendering files, planning what to write."""
