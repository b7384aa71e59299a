"""Operator tooling, one package per tool.

`doctor` checks settings, Redis, DynamoDB and S3; `audit` compares them; `trace` locates one
message; `cost` reports DynamoDB usage; `capacity` sizes a deployment; `tenants` exports and deletes
the tenants of shared tables; `selftest` checks the guarantees on real stores; `overview` serves the
admin page. Start with the `cli` module of a
tool; the logic is in its `service` or `report` module.
"""
