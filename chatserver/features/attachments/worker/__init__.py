"""The media and sweep workers."""
