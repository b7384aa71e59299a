"""DynamoDB access: client, batches, paging, metering and tenant isolation.

To read the code, start with `client` (one call: deadline, retries, error translation), then
`paging` (bounded pages of a Query) and `batches` (BatchWriteItem and BatchGetItem).
"""
