"""Proxy that makes a local DynamoDB server refuse and delay requests as AWS does.

Local servers run one request after another and have no capacity limits, so requests that AWS would
refuse succeed there. `proxy` is the server; each rule is a module without I/O:

- `conflicts`: a transaction and another request that run on the same item concurrently
- `capacity`: write and read units of each partition of a table or index
- `index_lag`: index queries return slightly outdated items

`requests`, `item_sizes` and `expressions` parse DynamoDB requests. `chatserver dev --aws-limits`
and the integration tests run the proxy as a process (`__main__`).
"""
