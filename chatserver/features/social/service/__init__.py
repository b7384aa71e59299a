"""Use cases of the social graph."""
