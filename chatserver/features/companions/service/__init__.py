"""Use cases for companions, their sessions and their memories."""
