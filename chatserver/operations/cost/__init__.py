"""`chatserver cost`: DynamoDB usage by feature and chat, and storage of each tier, in dollars.

`recorder` adds each process's usage to the daily totals in `hot`; `report` computes the cost with
`prices`; `table_sizes` and `bucket_sizes` read the stored sizes. Start with `report`.
"""
