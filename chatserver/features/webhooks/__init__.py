"""Webhooks of the host application: the before-send check and event delivery.

Start with `worker.py`. `before_send.py` runs in the processes that accept messages, `hot.py` holds
the Redis event queues, `client.py` and `signatures.py` the signed HTTP calls.
"""
