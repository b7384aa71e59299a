"""Background jobs of exports and erasures."""
