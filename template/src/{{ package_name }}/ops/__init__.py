"""One folder an op. Adding a folder adds an op: nothing else lists them."""
