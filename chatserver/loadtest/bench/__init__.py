"""Developer benchmarks of `chatserver load bench`. Each benchmark starts its own servers.

Processes run on fixed CPU cores (`server_stack`), and the CPU time of each is measured
(`cpu_usage`). To check every message at little cost, the benchmark client (module `session`)
compares each frame with its expected bytes. The benchmarks are `direct`, `groups`, `idle_sessions`,
`logins` and `persist`; docs/performance.md has their results.
"""
