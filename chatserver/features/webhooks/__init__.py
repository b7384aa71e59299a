"""Webhooks to the host application: the before-send check and event delivery.

Start with `worker.py`. `before_send.py` runs in the processes that accept messages. `hot.py` has
the Redis event queues, and `client.py` sends the signed HTTP requests.
"""

from chatserver.features.registry import Feature, Worker

FEATURE = Feature(
    name="webhooks",
    workers={
        "webhooks": Worker(
            "chatserver.features.webhooks.worker:run_webhooks",
            "sends webhook requests to the host application",
        ),
    },
    commands={
        "webhooks": (
            "chatserver.features.webhooks.cli:webhooks",
            "List and replay undelivered events.",
        ),
    },
    ports={
        "send_interceptor": "chatserver.features.webhooks.container:send_interceptor",
        "check_edit": "chatserver.features.webhooks.container:check_edit",
        "publish_event": "chatserver.features.webhooks.container:publish_event",
        "publish_entries": "chatserver.features.webhooks.container:publish_entries",
    },
    gateway_ports={
        "send_interceptor": "chatserver.features.webhooks.gateway_container:send_interceptor",
        "check_edit": "chatserver.features.webhooks.gateway_container:check_edit",
    },
)
