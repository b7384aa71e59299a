"""Tenants for operators: list, measure, block, export, delete, audit and restore them.

Start with `cli` (`chatserver tenants`). `tenant_stores` opens a tenant's data in Redis, DynamoDB
and S3; `deletion`, `tenant_audit`, `export` and `restoration` process it. A feature that stores
data elsewhere registers its stores (`Feature.tenant_stores`). See docs/tenants.md.
"""
