"""Presence: publishes the presence of connected users, and subscribes to other users' presence."""
