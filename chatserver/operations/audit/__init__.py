"""Consistency audit of chats: compares Redis, DynamoDB and S3, once or continuously.

`consistency_rules` contains the rules, `chat_audit` and `object_audit` read the tiers, and `model`
explains each kind of finding. `cli` and `worker` run audits; `hot` stores the results for the admin
page. Start with `chat_audit`.
"""
