"""Tenants for operators: list, measure, block, export, delete, audit and restore them.

Start with `cli` (`chatserver tenants`). `stores` opens what a tenant has in Redis, DynamoDB and S3;
`deletion`, `tenant_audit`, `export` and `restoration` work on it. What a feature stores elsewhere
is registered with it (`Feature.tenant_stores`). See docs/tenants.md.
"""
