"""What doctor looks at, a module for each topic; every check yields findings."""
