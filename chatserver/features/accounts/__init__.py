"""User accounts with passwords: registration, login, devices and profiles.

A host application with its own accounts does not need this feature. Start with
`service.password_logins` (registration and login), `service.profiles` and `service.login_tokens`
(login lifecycle); `warm` holds the DynamoDB items.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="accounts",
    requires=("social",),
    routes=(
        "chatserver.features.accounts.login_routes:build_accounts_routes",
        "chatserver.features.accounts.device_routes:build_devices_routes",
        "chatserver.features.accounts.demo_login_routes:build_demo_login_routes",
        "chatserver.features.accounts.profile_routes:build_me_routes",
        "chatserver.features.accounts.user_search_routes:build_users_routes",
        "chatserver.features.accounts.admin_routes:build_admin_accounts_routes",
    ),
    commands={
        "password": (
            "chatserver.features.accounts.cli:password",
            "Set the password of a user or an admin.",
        ),
    },
    middleware="chatserver.features.accounts.middleware:refuse_logins_early",
)
