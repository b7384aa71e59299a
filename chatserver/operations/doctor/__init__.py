"""`chatserver doctor`: diagnose settings, Redis, DynamoDB and S3.

`cli` is the command; `checks` lists all checks. `settings_checks`, `redis_checks`,
`dynamodb_checks` and `s3_checks` each return findings; `model` defines a finding.
"""
