"""Webhooks of the host application: the before-send check and event delivery.

Start with `worker.py`. `before_send.py` runs in the processes that accept messages, `hot.py` holds
the Redis event queues and `client.py` the signed HTTP calls.
"""

from chatserver.features.registry import Feature, Worker

FEATURE = Feature(
    name="webhooks",
    workers={
        "webhooks": Worker(
            "chatserver.features.webhooks.worker:run_webhooks",
            "calls the host application over HTTP",
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
