"""A folder for each op. Adding a folder adds an op: no other file lists them."""
