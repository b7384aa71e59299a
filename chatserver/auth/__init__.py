"""Credentials: access and refresh tokens, API keys, passwords and signed page cursors.

Start with `tokens.py`.
"""
