"""Schema of the DynamoDB tables: definitions, provisioning, versions and IAM policies.

Start with `tables` (tables, indexes and attribute names). `provisioning` creates the tables,
`migrations` changes them, and `documents` generates CloudFormation, Terraform and IAM files.
"""
