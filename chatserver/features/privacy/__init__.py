"""Data export and account erasure, requested by a user or the host application and run as jobs.

Start with `service` (use cases) and `worker.jobs` (execution of jobs). `worker.export` and
`worker.erasure` implement the two kinds of job.
"""

from chatserver.features.registry import Feature, Worker

FEATURE = Feature(
    name="privacy",
    sample_items="chatserver.features.privacy.sample_items:sample_items",
    requires=(
        "accounts",
        "attachments",
        "chat_preferences",
        "companions",
        "push",
        "social",
        "webhooks",
    ),
    routes=("chatserver.features.privacy.routes:privacy_routes",),
    workers={
        "exports": Worker(
            "chatserver.features.privacy.worker.export:run_exports",
            "creates exports of users' data",
        ),
        "erasures": Worker(
            "chatserver.features.privacy.worker.erasure:run_erasures",
            "deletes all data of users on their request",
        ),
    },
)
