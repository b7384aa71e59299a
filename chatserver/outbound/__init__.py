"""Outbound HTTP requests of the server: webhooks, push services, keys of token issuers.

All requests pass the address check in `destinations.py`. Start with `http_client.py`.
"""
