"""Credentials: access and refresh tokens, API keys, passwords and sealed page cursors.

Start with `tokens.py`.
"""
