"""Dependency wiring, the only composition root: connects use cases to adapters.

`core.CoreContainer` holds what every server process uses: the Redis adapters and the use cases of
chats. `gateway.GatewayContainer` reaches DynamoDB through workers; `storage.StorageContainer`, of
the API and the workers, has clients of DynamoDB and S3. Adapters are created with the container,
use cases at their first use; gateways and the API create all of them at startup. A feature adds its
own container, `container.get(SocialContainer)`, and provides what the core can use of it (`ports`,
`storage_ports`).
"""
