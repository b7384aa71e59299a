"""Presence: publishing the states of connected users, and subscriptions to those of others."""
