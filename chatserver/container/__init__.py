"""Dependency injection: creates the use cases and their adapters. The only composition root.

- `core.CoreContainer` has the dependencies of every server process.
- `gateway.GatewayContainer` accesses DynamoDB through workers.
- `storage.StorageContainer`, for the API and the workers, has DynamoDB and S3 clients.

The container creates adapters immediately, and each use case when it is first used. Gateways and
the API create all use cases at startup. A feature has its own container, for example
`container.get(SocialContainer)`, and implements ports (`feature_ports`, `storage_feature_ports`).
"""
