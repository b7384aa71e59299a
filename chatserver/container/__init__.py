"""Dependency wiring, the only composition root: connects use cases to adapters.

`core.CoreContainer` holds what every server process uses: the Redis adapters and the use cases of
chats. `gateway.GatewayContainer` reaches DynamoDB through workers; `storage.StorageContainer`, of
the API and the workers, has clients of DynamoDB and S3. Each dependency is created at its first
use. A feature adds a container of its own: ``container.get(SocialContainer)``.
"""
