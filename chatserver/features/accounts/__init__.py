"""User accounts with passwords: registration, login, devices and profiles.

A host application with its own accounts does not need this feature. Start with `service` (use
cases) and `logins` (lifecycle of a login); `warm` holds the DynamoDB rows.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(name="accounts")
