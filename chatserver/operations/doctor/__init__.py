"""`chatserver doctor`: diagnose settings, Redis, DynamoDB and S3.

`cli` is the command; `redis_checks`, `dynamodb_checks` and `s3_checks` each return the findings for
one store; `model` defines a finding.
"""
