"""Credentials: access and refresh tokens, API keys, passwords and signed page cursors.

Start with `access_tokens.py`.
"""
