"""Operator tooling, one package per tool.

`doctor` checks settings, Redis, DynamoDB and S3; `audit` compares the data in these stores; `trace`
locates one message; `cost` reports DynamoDB usage; `capacity` sizes a deployment; `tenants` exports
and deletes tenants that share tables; `selftest` checks the guarantees on real stores; `overview`
serves the admin page. Start with a tool's `cli` module.
"""
