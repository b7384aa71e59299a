"""Push notifications for members without a client in the foreground.

Start with `worker/push_worker.py` (the worker) and `worker/push_dispatcher.py` (recipients and
content). `providers/` implements Web Push, FCM and APNs. `hot.py` has the Redis data, `warm/` the
DynamoDB items.
"""

from chatserver.features.registry import Feature, Worker

FEATURE = Feature(
    name="push",
    routes=("chatserver.features.push.routes:build_push_routes",),
    workers={
        "notify": Worker(
            "chatserver.features.push.worker.push_worker:run_notify",
            "sends push notifications for new messages to offline members",
            check="chatserver.features.push.worker.push_worker:check_settings",
        ),
    },
    commands={
        "vapid": (
            "chatserver.features.push.cli:vapid",
            "Generate the VAPID key pair for browser pushes.",
        ),
    },
    dev_settings="chatserver.features.push.providers.vapid:make_dev_settings",
    ports={"push_devices": "chatserver.features.push.container:push_devices"},
)
