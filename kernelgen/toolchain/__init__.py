"""What a project's machine has to build and run it with."""
