"""`chatserver trace`: location and state of one message in Redis, DynamoDB and S3.

`cli` is the command, `service` the search, `hot` and `warm` read the tiers, `model` holds the
result. Start with `service`.
"""
