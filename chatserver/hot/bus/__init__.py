"""Messages between processes through Redis: mailboxes, calls to the warm tier, stored responses.

Start with `mailbox` (records for one gateway) and `rpc` (calls to workers). `remote_delivery` sends
events to other gateways. `idempotent_responses` and `job_progress` serve the HTTP API.
"""
