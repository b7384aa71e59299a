"""What a process has spent in DynamoDB: capacity units, by what for, by table and by chat."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal

from chatserver.domain.toplists import TopList

Kind = Literal["read", "write"]
KINDS: Final[tuple[Kind, ...]] = ("read", "write")
# What the calls of a client are for; the composition roots give it. `other`: nobody said.
Feature = Literal[
    "accounts",
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
    "persist",
    "privacy",
    "push",
    "schema",
    "social",
]
CHATS_MAX: Final = 500  # of which what they cost is told, per kind; see `TopList` for the rest

# (feature, table, kind) to units
Units = Mapping[tuple[str, str, str], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Spending:
    """Units by feature, table and kind; by kind and chat; and how many messages were stored.

    `chat_totals`: by kind, the units of all chats, of which `chats` tells those of the greatest.
    """

    units: Units
    chats: Mapping[Kind, Mapping[str, float]]
    chat_totals: Mapping[Kind, float]
    messages: int

    @property
    def is_empty(self) -> bool:
        """Nothing was spent."""
        return not self.units and not self.messages


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """What one process spent in a while. `number` rises with each part of the process."""

    process: str
    number: int
    day: str  # of when it was added up, as ``2026-01-31``
    spending: Spending


class Purse:
    """What has been spent since it was last emptied. Memory: bounded, see `CHATS_MAX`."""

    def __init__(self) -> None:
        self._empty()

    def _empty(self) -> None:
        self._units: dict[tuple[str, str, str], float] = {}
        self._chats: dict[Kind, TopList] = {kind: TopList(CHATS_MAX) for kind in KINDS}
        self._messages = 0

    def spend(self, feature: str, table: str, kind: Kind, units: float) -> None:
        """Note units. There are as many entries as features and tables."""
        key = feature, table, kind
        self._units[key] = self._units.get(key, 0.0) + units

    def spend_on_chats(self, kind: Kind, shares: Mapping[str, float], units: float) -> None:
        """Note whom units were spent on, divided as `shares` are; who is no chat is ``""``."""
        whole = sum(shares.values())
        for chat, share in shares.items():
            if chat:
                self._chats[kind].add(chat, units * share / whole)

    def count_messages(self, count: int) -> None:
        """Note that messages were stored."""
        self._messages += count

    def take(self) -> Spending:
        """Return what has been spent, and begin anew."""
        taken = Spending(
            self._units,
            {kind: dict(chats.sums) for kind, chats in self._chats.items()},
            {kind: chats.total for kind, chats in self._chats.items()},
            self._messages,
        )
        self._empty()
        return taken
