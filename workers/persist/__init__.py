"""Persist worker: moves committed messages from the Redis backlog to DynamoDB.

`worker` reads the backlog of a partition, `chat_queues` schedules the chats, `batch_changes`
applies edits and deletes in memory, `batch_writer` writes to DynamoDB, and `shard_scaling` shards
busy chats. To read the code, start with the diagram in `worker`.
"""
