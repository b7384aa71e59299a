"""Dependency injection: creates the use cases and their adapters. The only composition root.

- `core.CoreContainer` has the dependencies of every server process.
- `gateway.GatewayContainer` accesses DynamoDB through workers.
- `storage.StorageContainer`, for the API and the workers, has DynamoDB and S3 clients.

Adapters are created with the container, use cases on first use; gateways and the API create all of
them at startup. A feature has its own container, `container.get(SocialContainer)`, and implements
ports of the core (`feature_ports`, `storage_feature_ports`).
"""
