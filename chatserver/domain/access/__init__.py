"""Identity values: callers, principals, logins and token claims, login attempts, reserved names.

Start with `principals.py`.
"""
