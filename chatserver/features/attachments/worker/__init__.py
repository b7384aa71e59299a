"""Background jobs of attachments."""
