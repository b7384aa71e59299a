"""Load generator: simulates many users and verifies every message; see docs/load.md.

The `coordinator` starts `worker` processes and exchanges JSON lines with them. In a worker, the
`device`s of `load_users` act at times fixed by `arrival_schedule`, and a `checker` verifies all
deliveries. `histogram` merges the latencies; `report` renders the result.
"""
