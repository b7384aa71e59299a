"""Optional features, one package each, built on the core.

All features use the same module names:

- `model`: values and rules
- `service`: use cases
- `hot`, `warm`, `cold`: data in Redis, DynamoDB and S3
- `container`: dependencies, and implementations of the core's interfaces
- `routes`, `worker`: HTTP routes and background jobs
- `keys`, `tables` and the folder `scripts`: Redis keys, DynamoDB attributes and Lua scripts
- `settings`: the section of the settings; `doctor`: its checks for `chatserver doctor`
- `audit_cli`: a command of `chatserver audit`
- `sample_items`: example items of a table, for the documentation

Each package registers its parts as ``FEATURE``; see `registry`.
"""

# To remove a feature, delete its package and its line here.
INSTALLED = (
    "accounts",
    "analytics",
    "attachments",
    "chat_preferences",
    "companions",
    "group_pictures",
    "link_previews",
    "pins",
    "privacy",
    "push",
    "search",
    "social",
    "webhooks",
)
