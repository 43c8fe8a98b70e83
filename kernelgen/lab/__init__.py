"""The host's side of the lab: starts workers, compares, keeps and reports what they measured."""
