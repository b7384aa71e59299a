"""Messages between processes through Redis: gateway streams, calls to workers, stored responses.

Start with `gateway_stream` (records for one gateway) and `rpc` (calls to workers).
`remote_delivery` sends events to other gateways. `idempotent_responses` and `job_progress` serve
the HTTP API.
"""
