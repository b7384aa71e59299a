"""The warm tier: DynamoDB.

`schema` defines the tables, `dynamo` is the client; `messages`, `chats`, `archive` and `streams`
store the data. To read the code, start with `schema.tables` and `messages.messages`.
"""
