"""Background workers, started by ``chatserver worker``.

`registry` lists them, `runner` runs the selected ones in one process, and `partitions` and
`periodic_work` have the common loops. The core workers are `persist`, `archive`, `repair`, `rpc`
and `legal_holds`; features have their workers in their own packages. Start with `runner`.
"""
