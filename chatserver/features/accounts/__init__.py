"""User accounts with passwords: registration, login, devices and profiles.

A host application with its own accounts does not need this feature. Start with `service.accounts`
(use cases) and `service.logins` (login lifecycle); `warm` holds the DynamoDB items.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="accounts",
    sample_items="chatserver.features.accounts.sample_items:sample_items",
    requires=("social",),
    routes=(
        "chatserver.features.accounts.routes:accounts_routes",
        "chatserver.features.accounts.routes:devices_routes",
        "chatserver.features.accounts.routes:demo_login_routes",
        "chatserver.features.accounts.me_routes:me_routes",
        "chatserver.features.accounts.users_routes:users_routes",
        "chatserver.features.accounts.admin_routes:admin_accounts_routes",
    ),
    middleware="chatserver.features.accounts.middleware:refuse_logins_early",
)
