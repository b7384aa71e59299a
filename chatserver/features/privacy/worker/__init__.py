"""The workers that run exports and erasures."""
