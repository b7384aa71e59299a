"""Consistency audit of chats: Redis, DynamoDB and S3 compared, once or continuously.

`checks` contains the rules without I/O, `chat_audit` and `object_audit` read the tiers, `model`
explains each kind of finding. `cli` and `worker` run audits; `hot` stores the results for the admin
page. Start with `chat_audit`.
"""
