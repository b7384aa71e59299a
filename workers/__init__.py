"""Background workers, started by ``chatserver worker``.

`runner` runs the selected workers in one process, `container` wires their dependencies, and
`partitions` and `rounds` are the common loops. The core workers are `persist`, `archive`, `repair`,
`rpc` and `legal_holds`; features have their workers in their own packages. Start with `runner`.
"""
