"""Active days of chats: the days on which a chat has messages, in table `directory`.

| record      | `PK`       | `SK`                   | attributes                                  |
|-------------|------------|------------------------|---------------------------------------------|
| active days | `c#<chat>` | `recorded_days#<chat>` | `first`: the first day (days since 1970,    |
|             |            |                        | UTC); `days`: bit n of this little-endian   |
|             |            |                        | bitmap is day `first` + n; `earlier`        |
|             |            |                        | (optional): the chat also has messages of   |
|             |            |                        | unknown earlier days                        |

Listing all of a user's messages means reading the user's chats
(`chatserver.service.history.messages_of_all_chats`). Chats that have no message on the days in
question are skipped. One item per chat serves all members, so the cost does not grow with the
group.

Invariant: a day is added to the item before a message from that day is written to table `messages`.
Days are never removed, so a day may have no messages left. Chats without an item may have messages
on any day.

Only the persist worker that holds the lease of the chat's partition writes the item. It replaces
the whole item: 20 years take less than 1 KB, which is one write unit.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Final

import structlog

from chatserver.config import Warm
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.directory_items import chat_key, row_key
from chatserver.warm.dynamo.batches import READS_MAX, WRITES_MAX, get_items, put_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.schema.directory_attributes import ActiveDaysField as Field
from chatserver.warm.schema.tables import DIRECTORY

log = structlog.get_logger()

DAY_US: Final = 86_400_000_000
DAYS_MAX: Final = 65_536  # days from 1970 to 2149; later days are not recorded
PREFIX: Final = "recorded_days#"  # sorts after all member keys, so member queries skip it
_CALLS_IN_FLIGHT_MAX: Final = 4


def get_day(ts: int) -> int:
    """Return the day (days since 1970, UTC) of a ts in microseconds."""
    return ts // DAY_US


@dataclasses.dataclass(frozen=True, slots=True)
class DaySet:
    """A set of days. `has_earlier`: all days before `first` belong to it, too."""

    first: int
    bits: int = 0  # bit n is the day `first` + n
    has_earlier: bool = False

    def __contains__(self, day: int) -> bool:
        if day < self.first:
            return self.has_earlier
        return bool(self.bits >> (day - self.first) & 1)

    def add(self, day: int) -> DaySet:
        """Return this set with a day added."""
        if day in self:
            return self
        if day >= self.first:
            return dataclasses.replace(self, bits=self.bits | 1 << (day - self.first))
        return DaySet(day, self.bits << (self.first - day) | 1)

    def find_before(self, day: int) -> int | None:
        """Return the last day in the set up to and including `day`, or None."""
        if day >= self.first:
            count = day - self.first + 1
            is_all = count >= self.bits.bit_length()
            upto = self.bits if is_all else self.bits & ((1 << count) - 1)
            if upto:
                return self.first + upto.bit_length() - 1
            day = self.first - 1
        return day if self.has_earlier else None

    def find_after(self, day: int) -> int | None:
        """Return the first day in the set from `day` on, or None."""
        if day < self.first:
            if self.has_earlier:
                return day
            day = self.first
        later_bits = self.bits >> (day - self.first)
        return day + (later_bits & -later_bits).bit_length() - 1 if later_bits else None


# For a chat without an item: any day is possible.
ANY_DAY: Final = DaySet(DAYS_MAX, has_earlier=True)


class ActiveDays:
    """Repository of chats' active days."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def find_many(self, chats: Collection[str]) -> dict[str, DaySet]:
        """Return the active days of those chats that have an item.

        Guarantees:
            Strongly consistent: includes the day of each message stored before the call.
            Cost: one BatchGetItem per 100 chats; one read unit per chat.
        """
        keys = [_build_key(chat) for chat in chats]
        parts = [keys[start : start + READS_MAX] for start in range(0, len(keys), READS_MAX)]
        pages = await map_concurrently(
            functools.partial(get_items, self._client, self._table),
            parts,
            in_flight_max=_CALLS_IN_FLIGHT_MAX,
            name="active-days",
        )
        return {
            item[Field.SK]["S"].removeprefix(PREFIX): decode_days(item)
            for items in pages
            for item in items
        }

    async def put_many(self, days: Mapping[str, DaySet]) -> None:
        """Replace the stored active days of chats.

        Guarantees:
            Idempotent; all are stored when this returns.
            Cost: one BatchWriteItem per 25 chats; one write unit per chat, two for a new item.
        """
        items = [encode_days(chat, day_set) for chat, day_set in days.items()]
        for start in range(0, len(items), WRITES_MAX):
            await put_items(self._client, self._table, items[start : start + WRITES_MAX])


def _build_key(chat: str) -> Item:
    return row_key(chat_key(chat), f"{PREFIX}{chat}")


def encode_days(chat: str, days: DaySet) -> Item:
    """Return the item for a chat's active days."""
    size = (days.bits.bit_length() + 7) // 8
    item = _build_key(chat)
    item[Field.FIRST] = {"N": str(days.first)}
    item[Field.DAYS] = {"B": base64.b64encode(days.bits.to_bytes(size, "little")).decode()}
    if days.has_earlier:
        item[Field.EARLIER] = {"BOOL": True}
    return item


def decode_days(item: Item) -> DaySet:
    """Decode an item. An invalid item yields `ANY_DAY`, which costs reads but hides no message.

    Nothing repairs the stored item.
    """
    try:
        first, bits = int(item[Field.FIRST]["N"]), base64.b64decode(item[Field.DAYS]["B"])
        return DaySet(first, int.from_bytes(bits, "little"), Field.EARLIER in item)
    except (KeyError, ValueError, TypeError) as exc:
        log.error("active_days.unreadable", key=item.get(Field.SK), error=repr(exc))
        return ANY_DAY
