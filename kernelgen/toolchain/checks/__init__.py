"""What doctor looks at, one module a subject; every check takes the facts and yields findings."""
