"""Switch of DynamoDB's TTL to another attribute, for a table in use.

There is no single API call: TTL is switched off and on again. AWS takes up to an hour for each step
and rejects the second until the first is done. So this polls the state and takes the next step when
possible. Resumable: a restarted run continues from the current state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.provisioning import expiry_of

POLL_S: Final = 0.2
POLL_S_MAX: Final = 30.0
TELL_S: Final = 300.0


async def switch_expiry(
    client: DynamoClient, table_name: str, attribute: str, say: Callable[[str], None], what: str
) -> None:
    """Return once TTL reads `attribute`. The caller sets a deadline.

    Guarantees:
        Idempotent and resumable. Cancellation: safe; TTL may be off until the next run.

    Raises:
        CorruptData: DynamoDB rejects the change for another reason than a recent change.
    """
    wait_s, told_s = POLL_S, TELL_S
    while True:
        state = await expiry_of(client, table_name)
        status, found = state["TimeToLiveStatus"], state.get("AttributeName")
        if found == attribute and status in {"ENABLED", "ENABLING"}:
            say(f"{what}: TTL reads {attribute}")
            return
        if status in {"ENABLED", "DISABLED"}:
            is_on = status == "DISABLED"
            await _set(client, table_name, attribute if is_on or found is None else found, is_on)
        if told_s >= TELL_S:
            say(f"{what}: TTL is {status.lower()}")
            told_s = 0.0
        await asyncio.sleep(wait_s)
        told_s += wait_s
        wait_s = min(wait_s * 1.5, POLL_S_MAX)


async def _set(client: DynamoClient, table_name: str, attribute: str, is_on: bool) -> None:
    specification: dict[str, Any] = {"Enabled": is_on, "AttributeName": attribute}
    request = {"TableName": table_name, "TimeToLiveSpecification": specification}
    try:
        await client.call("update_time_to_live", request)
    except CorruptData as exc:
        # "Time to live has been modified multiple times within a fixed interval": retry later.
        if "fixed interval" not in exc.message and "already" not in exc.message:
            raise
