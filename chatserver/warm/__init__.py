"""The warm tier: DynamoDB.

`schema` defines the tables, `dynamo` is the client; `messages`, `chats`, `archive` and `streams`
hold the data. Start with `schema.tables` and `messages.store`.
"""
