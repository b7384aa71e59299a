"""Deterministic simulation of the whole server in one process; see docs/testing.md."""
