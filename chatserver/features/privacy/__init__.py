"""Data exports and account erasures: jobs that users or the host application request.

Start with `service` (use cases) and `worker.job_worker` (job execution). `worker.export` and
`worker.erasure` implement the two kinds of jobs.
"""

from chatserver.features.registry import BACKGROUND_NICE, Feature, Worker

FEATURE = Feature(
    name="privacy",
    requires=(
        "accounts",
        "attachments",
        "chat_preferences",
        "companions",
        "push",
        "social",
        "webhooks",
    ),
    routes=("chatserver.features.privacy.routes:build_privacy_routes",),
    workers={
        "exports": Worker(
            "chatserver.features.privacy.worker.export:run_exports",
            "creates data exports for users",
            nice=BACKGROUND_NICE,
        ),
        "erasures": Worker(
            "chatserver.features.privacy.worker.erasure:run_erasures",
            "erases the data of users on request",
            nice=BACKGROUND_NICE,
        ),
    },
)
