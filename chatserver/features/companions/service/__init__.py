"""Use cases of companions and their sessions."""
