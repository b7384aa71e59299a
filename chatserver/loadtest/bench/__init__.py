"""Developer benchmarks of `chatserver load bench`, each on servers that it starts itself.

Processes run on fixed CPU cores and are charged for their own CPU time (`server_stack`,
`cpu_usage`). The client of `session` compares each frame with the bytes it must have, so that the
generator costs little and still checks every message. The benchmarks are `direct`, `groups`,
`idle_sessions`, `logins` and `persist`; docs/performance.md has their results.
"""
