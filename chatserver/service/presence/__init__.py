"""Presence: publishes the presence of connected users, and subscribes to that of others."""
