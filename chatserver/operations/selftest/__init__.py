"""`chatserver selftest`: check the guarantees against the configured Redis, DynamoDB and S3.

`cli` is the command. `resources` creates and deletes the tables and objects of one run;
`dynamodb_checks`, `s3_checks` and `redis_checks` check one store each, and `worker` checks the
guarantees across all stores. `model` has the results and the report, `cost` the cost estimate.
"""
