"""Use cases of accounts and logins."""
