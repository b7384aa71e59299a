"""Background jobs of the social graph."""
