"""Use cases of attachments."""
