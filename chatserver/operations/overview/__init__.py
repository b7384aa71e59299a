"""Admin page: statistics of all processes, audit findings and cost.

`publisher` runs in every process and appends process statistics to the Redis stream in `hot`;
`service` aggregates the stream; `routes` serves the HTTP API. Start with `service`.
"""
