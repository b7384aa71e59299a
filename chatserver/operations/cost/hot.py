"""Daily DynamoDB usage of all processes (UTC), in Redis for `chatserver cost`.

Data of each day, kept for `KEPT_S` after the last write to it:

    {cost}:units:<day>    hash  ``<feature>:<table>:<kind>`` → units; ``messages``: number of stored
                                messages; ``chats:<kind>``: units of all chats
    {cost}:reads:<day>    zset  chat → read units, for the chats that used the most
    {cost}:writes:<day>   zset  chat → write units, for the chats that used the most
    {cost}:flushes:<day>  hash  process → number of the last part that was added; a part
                                is the usage of the process since the previous part

    Bound: one field per feature, table and kind, and at most ``2 * CHATS_MAX`` chats in each zset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, load_script
from chatserver.telemetry.dynamodb_usage import CHATS_MAX, KINDS, Kind, Part, Spending

KEPT_S: Final = 40 * 86_400
MESSAGES: Final = "messages"
_LISTS: Final[Mapping[Kind, str]] = {"read": "reads", "write": "writes"}
_CHATS: Final = "chats"


class UsageTotals:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def add(self, part: Part) -> None:
        """Add `part`, a process's usage since its previous part, to the day's totals.

        Guarantees:
            Idempotent. The parts of a process must be added in order.
            Cost: one call, with at most ``2 * CHATS_MAX`` chats for reads and for writes.

        Raises:
            Unavailable: the part may or may not have been added; retry it.
        """
        keys, day = self._hot.keys, part.day
        await self._hot.run(
            load_script("add_dynamodb_usage"),
            {
                "units": keys.cost_units(day),
                "reads": keys.cost_reads(day),
                "writes": keys.cost_writes(day),
                "flushes": keys.cost_flushes(day),
            },
            {
                "process": part.process,
                "number": part.number,
                "size": CHATS_MAX,
                "ttl_s": KEPT_S,
            },
            list(_iter_amounts(part.spending)),
        )

    async def get_day(self, day: str) -> Spending:
        """Return the usage on a day; empty if there is none. Raises Unavailable."""
        keys = self._hot.keys
        fields = await self._hot.call("HGETALL", keys.cost_units(day))
        flat = dict(zip(fields[::2], fields[1::2], strict=True))
        units: dict[tuple[str, str, str], float] = {}
        totals: dict[Kind, float] = {}
        messages = 0
        for raw, amount in flat.items():
            name = raw.decode()
            if name == MESSAGES:
                messages = round(float(amount))
            elif name.startswith(f"{_CHATS}:"):
                kind: Kind = "read" if name.endswith(":read") else "write"
                totals[kind] = float(amount)
            else:
                feature, table, spent = name.split(":")
                units[feature, table, spent] = float(amount)
        chats: dict[Kind, Mapping[str, float]] = {
            "read": await self._get_chats(keys.cost_reads(day)),
            "write": await self._get_chats(keys.cost_writes(day)),
        }
        return Spending(units, chats, totals, messages)

    async def _get_chats(self, key: str) -> dict[str, float]:
        items = await self._hot.call("ZRANGE", key, 0, 2 * CHATS_MAX, "WITHSCORES")
        return {
            name.decode(): float(amount)
            for name, amount in zip(items[::2], items[1::2], strict=True)
        }


def _iter_amounts(spending: Spending) -> Iterator[dict[str, Value]]:
    def make_item(name_of_list: str, name: str, amount: float) -> dict[str, Value]:
        return {"list": name_of_list, "name": name, "amount": repr(amount)}

    for key, amount in spending.units.items():
        yield make_item("units", ":".join(key), amount)
    if spending.messages:
        yield make_item("units", MESSAGES, float(spending.messages))
    for kind in KINDS:
        if total := spending.chat_totals.get(kind):
            yield make_item("units", f"{_CHATS}:{kind}", total)
        for chat, amount in spending.chats.get(kind, {}).items():
            yield make_item(_LISTS[kind], chat, amount)
