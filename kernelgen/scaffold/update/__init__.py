"""Brings a project to another version of its template: git merges what the template changed with what its owner did."""
