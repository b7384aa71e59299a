"""Development environment: `chatserver dev` and local replacements for AWS services.

Start with `command`; `plan` defines the processes, `supervisor` runs them, `servers` starts Redis,
DynamoDB and S3, also for tests.
"""
