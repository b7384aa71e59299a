"""Workers for exports and erasures."""
