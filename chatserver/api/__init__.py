"""HTTP API: REST routes and the files of the web client.

`app` builds the application; start there. `routes` has one module per resource. `security`,
`idempotency`, `paging` and `problems` implement the common behavior of routes.
"""
