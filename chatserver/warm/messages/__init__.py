"""Table `messages`: message storage, queries and changes.

To read the code, start with `message_repository` (item format, batch writes, reads by seq) and
`message_indexes` (reads by time through the indexes). `message_changes` applies edits, deletes and
reactions; `sharded_chats` spreads writes to busy chats over partitions, and `chat_partition_reads`
reads them; `ttl` and `long_bodies` handle expiry and bodies stored in S3; `removed_message_markers`
defines the items that replace expired and lost messages.
"""
