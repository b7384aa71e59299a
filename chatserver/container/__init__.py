"""Dependency wiring, the only composition root: connects use cases to adapters.

`core.CoreContainer` has the dependencies of every server process: the Redis adapters and the use
cases of chats. `gateway.GatewayContainer` accesses DynamoDB through workers;
`storage.StorageContainer`, for the API and the workers, has clients for DynamoDB and S3. Adapters
are created with the container, use cases on first use; gateways and the API create all of them at
startup. A feature adds its own container, `container.get(SocialContainer)`, and implements ports of
the core (`ports`, `storage_ports`).
"""
