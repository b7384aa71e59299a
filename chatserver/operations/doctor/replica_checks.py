"""Check of the number of Redis replicas, for `chatserver doctor`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chatserver.operations.doctor.model import Finding, make_finding


def check_replicas(
    store: str, name: str, info: Mapping[str, Any], wait_replicas: int
) -> list[Finding]:
    """Return whether enough replicas remain if a server fails.

    A replica that becomes the master has one replica less than its predecessor. `info` is the
    server's reply to INFO.
    """
    replicas = int(info.get("connected_slaves", 0))
    findings = [
        make_finding(
            store,
            f"{name}: has a replica",
            is_met=replicas > 0,
            fix="add a replica; otherwise, there is no failover",
            level="note",
        )
    ]
    if wait_replicas:
        findings.append(
            make_finding(
                store,
                f"{name}: has at least {wait_replicas + 1} replicas "
                f"(CHAT_REDIS_WAIT_REPLICAS is {wait_replicas})",
                is_met=replicas > wait_replicas,
                fix=f"it has {replicas}; add replicas. If one of its servers fails, each message "
                "waits for DynamoDB until the server is back",
                level="note",
            )
        )
    # Redis reports this field only if `min-replicas-to-write` is set.
    if "min_slaves_good_slaves" in info:
        findings.append(
            make_finding(
                store,
                f"{name}: has at least 2 replicas (min-replicas-to-write is set)",
                is_met=replicas > 1,
                fix=f"it has {replicas}; add replicas. If one of its servers fails, Redis refuses "
                "all writes until the server is back",
                level="note",
            )
        )
    return findings
