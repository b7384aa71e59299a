"""`chatserver cost`: the cost of DynamoDB usage, by feature and chat, and of storage, by tier.

`usage_recorder` adds each process's usage to the daily totals in `hot`; `report` computes the cost
with `prices`; `stored_sizes` reads the sizes of DynamoDB and S3. Start with `report`.
"""
