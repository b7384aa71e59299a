"""AI companions: chat members whose messages a language model writes.

Start with `model.py` (companions, versions, sessions) and `worker.py` (the background job that
responds). `service.py` and `sessions.py` hold the use cases, `models/` the model providers, `hot/`
the Redis data and `warm/` the DynamoDB items.
"""
