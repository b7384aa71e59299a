"""Optional features, one package each, built on the core.

A feature has the same modules everywhere, as needed: `model` (values and rules), `service` (use
cases), `hot`, `warm` and `cold` (its data in Redis, DynamoDB and S3), `container` (its
dependencies, and what it provides to the core), routes and workers. The package registers them as
``FEATURE``; see `registry`. Start with the docstring of the package.
"""

# To remove a feature, delete its package and its line here.
INSTALLED = (
    "accounts",
    "attachments",
    "companions",
    "privacy",
    "push",
    "social",
    "webhooks",
)
