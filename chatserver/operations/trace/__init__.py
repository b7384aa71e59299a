"""`chatserver trace`: where one message is in Redis, DynamoDB and S3, and its state.

`cli` is the command, `service` finds the message, `hot` and `warm` read the tiers, and `model`
defines the result. Start with `service`.
"""
