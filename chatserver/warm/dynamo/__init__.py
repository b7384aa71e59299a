"""DynamoDB access: client, batches, paging, metering and tenant isolation.

To read the code, start with `table` (typed requests; `conditions` and `codecs` are their parts) and
`client` (one call: deadline, retries, error translation), then `paging` (bounded pages of a Query)
and `batches` (BatchWriteItem and BatchGetItem).
"""
