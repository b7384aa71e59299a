"""The cold tier: S3."""
