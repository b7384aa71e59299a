"""Attachment use cases."""
