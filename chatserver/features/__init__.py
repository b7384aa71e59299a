"""Optional features, one package each, built on the core.

A feature has the same modules everywhere, as needed: `model` (values and rules), `service` (use
cases), `hot`, `warm` and `cold` (its data in Redis, DynamoDB and S3), `container` (its
dependencies, and the ports that it implements for the core), routes and workers. The package
registers them as ``FEATURE``; see `registry`. To read a feature, start with its package docstring.
"""

# To remove a feature, delete its package and its line here.
INSTALLED = (
    "accounts",
    "analytics",
    "attachments",
    "companions",
    "pins",
    "privacy",
    "push",
    "social",
    "webhooks",
)
