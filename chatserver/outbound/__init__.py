"""Outbound HTTP requests: to webhooks, push services and token issuers.

All requests pass the address check in `allowed_destinations.py`. Start with `http_client.py`.
"""
