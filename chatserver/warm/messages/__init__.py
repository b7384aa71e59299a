"""Table `messages`: message storage, queries and changes.

To read the code, start with `messages` (item format, batch writes, reads by seq) and
`message_indexes` (reads by time through the indexes). `message_changes` applies edits, deletes and
reactions; `sharded_chats` distributes busy chats over several partitions, and
`chat_partition_reads` reads a chat across its partitions; `ttl` and `long_bodies` handle expiry and
bodies stored in S3; `removed_message_markers` defines the items that replace expired and lost
messages.
"""
