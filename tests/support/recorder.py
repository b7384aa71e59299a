"""Recorder of the history of all clients of a run."""

from __future__ import annotations

import itertools
import time
from typing import Any

from tests.support.history.events import Event, History, LogEntry


class Recorder:
    """Records the events of all clients of a run with timestamps."""

    def __init__(self) -> None:
        self.history = History()
        self._start = time.monotonic()
        self.conns = itertools.count(1)

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._start

    def add(self, event: Event) -> None:
        """Record an event."""
        self.history.events.append(event)

    def add_device(self, user: str, device: str) -> None:
        """Record that a user has a device."""
        devices = self.history.devices.setdefault(user, [])
        if device not in devices:
            devices.append(device)


def entry_of_item(item: dict[str, Any]) -> LogEntry:
    """Convert a DynamoDB item to an entry without the product's code."""
    texts = {name: item[name]["S"] for name in ("user", "role") if name in item}
    return LogEntry(
        int(item["seq"]["N"]),
        int(item["ts"]["N"]),
        item["mid"]["S"],
        item["sender_id"]["S"],
        item["ref"]["S"],
        item["kind"]["S"],
        item.get("body", {"S": ""})["S"],
        int(item["target"]["N"]) if "target" in item else None,
        **texts,
        deleted="deleted" in item,
        reactions={u: e["S"] for u, e in item.get("reactions", {"M": {}})["M"].items()},
    )
