"""A process's DynamoDB usage: capacity units by feature, table and chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from chatserver.telemetry.heavy_hitters import HeavyHitters

Kind = Literal["read", "write"]
KINDS: Final[tuple[Kind, ...]] = ("read", "write")
# The feature to which a DynamoDB client's calls are attributed. The container sets it; default:
# `other`.
Feature = Literal[
    "accounts",
    "analytics",
    "archive",
    "audit",
    "bodies",
    "companions",
    "directory",
    "history",
    "media",
    "membership",
    "migrate",
    "moderation",
    "operations",
    "other",
    "patterns",
    "pins",
    "persist",
    "privacy",
    "push",
    "schema",
    "search",
    "social",
]
CHATS_MAX: Final = 500  # maximum chats with reported usage, for reads and for writes

# (feature, table, kind) → units
Units = Mapping[tuple[str, str, str], float]


class Spending(msgspec.Struct, frozen=True):
    """DynamoDB units consumed, and the number of stored messages.

    `chat_totals` has the total units of all chats, by kind (read or write). `chats` has the units
    of the most expensive chats, by kind and chat.
    """

    units: Units
    chats: Mapping[Kind, Mapping[str, float]]
    chat_totals: Mapping[Kind, float]
    messages: int

    @property
    def is_empty(self) -> bool:
        """True if there was no usage."""
        return not self.units and not self.messages


class Part(msgspec.Struct, frozen=True):
    """One process's usage in one interval. `number` increases with each interval."""

    process: str
    number: int
    day: str  # such as ``2026-01-31``
    spending: Spending


class UsageAccumulator:
    """Accumulated usage since the last `drain`. Memory: bounded, see `CHATS_MAX`."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._units: dict[tuple[str, str, str], float] = {}
        self._chats: dict[Kind, HeavyHitters] = {kind: HeavyHitters(CHATS_MAX) for kind in KINDS}
        self._messages = 0

    def record_units(self, feature: str, table: str, kind: Kind, units: float) -> None:
        """Add units to the total of a feature, table and kind."""
        key = feature, table, kind
        self._units[key] = self._units.get(key, 0.0) + units

    def record_chat_units(self, kind: Kind, shares: Mapping[str, float], units: float) -> None:
        """Divide units among chats in proportion to `shares`; key "" means items of no chat."""
        whole = sum(shares.values())
        for chat, share in shares.items():
            if chat:
                self._chats[kind].add(chat, units * share / whole)

    def record_messages(self, count: int) -> None:
        self._messages += count

    def drain(self) -> Spending:
        """Return the accumulated usage and reset it."""
        usage = Spending(
            self._units,
            {kind: dict(chats.sums) for kind, chats in self._chats.items()},
            {kind: chats.total for kind, chats in self._chats.items()},
            self._messages,
        )
        self._reset()
        return usage
