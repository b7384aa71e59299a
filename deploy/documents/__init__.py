"""Generators of documents and deployment files, for `make docs`. Not part of the package."""
