"""`chatserver trace`: the state of one message in Redis, DynamoDB and S3.

`cli` is the command, `service` finds the message, `hot` and `warm` read the tiers, and `model`
defines the result. Start with `service`.
"""
