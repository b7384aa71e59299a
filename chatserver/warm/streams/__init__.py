"""DynamoDB Stream of table `messages`: reader, shard order and checkpoints.

To read the code, start with `reader` (shards and records). `shard_lineage` decides which shards may
be read, and `checkpoints` stores leases and progress.
"""
