"""Access control: tokens, API keys, the host application's signing keys, and revocation.

Start with `token_authentication.py`, which checks a token on each request.
"""
