"""Schema of the DynamoDB tables: definitions, provisioning, versions and IAM policies.

To read the code, start with `tables` (tables, indexes and attribute names). `provisioning` creates
the tables, `migrations` changes them, and `iam_policies` generates IAM policies.
"""
