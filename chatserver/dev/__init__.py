"""Development environment: `chatserver dev` and local replacements for AWS services.

To read the code, start with `command`. `process_plan` defines the processes, `supervisor` runs
them, and `servers` starts Redis, DynamoDB and S3, also for tests.
"""
