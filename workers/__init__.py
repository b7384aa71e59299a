"""Background workers, started by ``chatserver worker``.

`registry` lists them, `runner` runs the selected ones in one process, and `partition_workers` and
`periodic_work` contain common loops. The core workers are `persist`, `archive`, `repair`, `rpc` and
`holds`; other workers are in the packages of their features. To read the code, start with
`runner`.
"""
