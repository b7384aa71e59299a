"""Redis access: connections, cluster routing, key names and Lua scripts.

Start with `client` (the interface) and `keys` (the data model). `factory` opens the configured
client: `single_server` or `cluster`. `pipelined_connection` sends calls over one connection, in
order; `epochs` detects data loss; `durability` builds and checks the WAIT command of a commit;
`scripts` loads the Lua files.
"""
