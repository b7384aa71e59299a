"""Recorded histories of a run and their checker."""
