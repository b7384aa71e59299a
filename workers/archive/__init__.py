"""Archive worker: moves old messages from DynamoDB to S3 segments, and checks TTL removals.

`worker` finds the chats to archive, `archiver` archives one chat, and `segment_rewriter` merges
changes and deletes into its segments. `ttl_stream_reader` and `ttl_removal_checks` restore items
that TTL removed too early; `ttl_emulation` replaces TTL for local servers. `restorer` copies
archived entries back to DynamoDB, and `long_body_sweep` deletes orphaned body objects. To read the
code, start with `archiver`.
"""

LEASE_S = 60.0  # if a worker dies, another takes over after this time
