"""AI companions: chat members whose messages are written by a language model.

Start with `model.py` (companions, versions, sessions) and `worker/assistant_worker.py` (the worker
that responds). `service/` holds the use cases, `providers/` the model providers, `hot/` the Redis
data and `warm/` the DynamoDB items.
"""

from chatserver.features.registry import Feature, Worker

_SEND = "chatserver.features.companions.gateway_container:check_companion_send"

FEATURE = Feature(
    name="companions",
    requires=("attachments", "webhooks"),
    requests="chatserver.features.companions.requests",
    routes=(
        "chatserver.features.companions.routes:build_companions_routes",
        "chatserver.features.companions.memory_routes:build_companion_memory_routes",
    ),
    workers={
        "assistant": Worker(
            "chatserver.features.companions.worker.assistant_worker:run_assistant",
            "answers users' messages to AI companions",
            prepare="chatserver.features.companions.worker.assistant_worker:preload_sdks",
        ),
    },
    commands={
        "companion": (
            "chatserver.features.companions.cli:companion",
            "Create, list, update and delete AI companions.",
        ),
    },
    dev_data="chatserver.features.companions.dev_data:create_echo",
    ports={
        "check_companion_send": _SEND,
        "record_pending": "chatserver.features.companions.container:record_pending",
        "revive_session": "chatserver.features.companions.container:revive_session",
    },
    gateway_ports={"check_companion_send": _SEND},
)
