"""Load generator: simulates many users and verifies every message; see docs/load.md.

The `coordinator` starts `worker` processes and exchanges JSON lines with them. In a worker, each
simulated user has a `device` (`load_users` has all of them), which acts at times fixed by
`arrival_schedule`. A `delivery_checker` verifies all deliveries, `histogram` merges the latencies,
and `report` renders the result.
"""
