"""Workers of attachments."""
