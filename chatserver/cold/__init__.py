"""The cold tier: S3.

To read the code, start with `client` (calls, retries, signed URLs). `segment_objects` and
`segment_format` store archived entries, `long_bodies` stores message bodies, and `bucket`
configures the bucket.
"""
