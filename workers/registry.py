"""Registry of background workers, including those that features add."""

from __future__ import annotations

from chatserver.features.registry import BACKGROUND_NICE, Worker, list_features

_CORE = {
    "persist": Worker(
        "workers.persist.worker:run_persist", "moves messages from Redis to DynamoDB"
    ),
    "repair": Worker(
        "workers.delivery_repair:run_repair",
        "completes deliveries that a gateway left unfinished when it died",
    ),
    "rpc": Worker("workers.rpc:run_rpc", "serves the gateways' calls to DynamoDB"),
    "archive": Worker(
        "workers.archive.worker:run_archive",
        "moves old messages from DynamoDB to S3",
        nice=BACKGROUND_NICE,
    ),
    "holds": Worker(
        "workers.legal_hold_transitions:run_holds",
        "applies legal holds, and deletes held copies when a hold ends",
        nice=BACKGROUND_NICE,
    ),
}
_AUDIT = Worker(
    "chatserver.operations.audit.worker:run_audit",
    "compares the tiers continuously",
    nice=BACKGROUND_NICE,
    is_in_all=False,  # its reads cost money
)


def list_workers() -> dict[str, Worker]:
    added = {
        name: worker for feature in list_features() for name, worker in feature.workers.items()
    }
    return {**_CORE, **added, "audit": _AUDIT}
