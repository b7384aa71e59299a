"""Membership in the hot tier: membership changes and read access checks.

Data: ``{pN}:members:<chat>`` has the members, ``{pN}:turnover:<chat>`` has the pending notices of
joins and leaves, and ``{pN}:changing`` has the changes in progress. If a process dies after writing
a change to the `directory` table but before writing it to Redis, worker `repair` finishes the
change. A member's joined seq is the chat seq at which the user joined.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import attrs

from chatserver.domain.ids import ChatId, Ref, Seq, UserId, new_id
from chatserver.domain.membership_change_types import (
    ChangedChatHead,
    ChangePosition,
    MembershipChange,
    ReferenceRecord,
)
from chatserver.domain.membership_periods import Periods, Reader
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.domain.messages import (
    format_name,
    parse_ref_record,
    reference_key,
)
from chatserver.domain.write_restrictions import parse_member_status
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.chat_log import parse_stored
from chatserver.hot.chats.membership_notices import MembershipNotice
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, load_script

OVERDUE_MAX = 100  # maximum pending changes read per call
LOADS_MAX = 3
PERIODS_CACHED_MAX = 10_000
UNSTORED_S = 5.0  # delay before the `repair` worker checks that a change's entries are stored
_CLOSED = 0


class ScriptInput(NamedTuple):
    """Inputs of a script, by the names in its header."""

    keys: dict[str, Value]
    args: dict[str, Value]
    items: list[dict[str, Value]]


def build_change_input(hot: HotClient, change: MembershipChange) -> ScriptInput:
    """Return the input for ``change_members.lua``."""
    chat = change.chat
    return ScriptInput(
        hot.keys.of(chat, *load_script("change_members").keys),
        {
            "epoch": hot.get_epoch(hot.keys.get_partition(chat)),
            "chat_id": chat,
            "version": change.version,
            "title": change.name,
            "history": change.history,
            "ref": reference_key(change.sender, change.ref),
            "name": format_name(change.mid, change.digest),
            "large": change.large,
            "transition": change.transition,
            "repeat_lost": "1" if change.is_repeat else "",
            "picture": change.picture,
        },
        [
            {
                "user": entry.user,
                "role": entry.role,
                "is_new": "1" if entry.is_new else "",
                "tail": entry.tail,
            }
            for entry in change.entries
        ],
    )


def parse_changed(value: bytes | None) -> dict[int, ChangePosition]:
    """Parse a chat's last changes: chat version → position of the change's first entry."""
    positions: dict[int, ChangePosition] = {}
    for field in (value or b"").decode().split(",") if value else ():
        version, _, first = field.partition(":")
        positions[int(version)] = ChangePosition(Seq(int(first.rstrip("lr"))), first.isdigit())
    return positions


class HotMembership:
    """Changes memberships and write policies in Redis."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = hot.keys

    # changes in progress

    async def begin(self, chat: ChatId, hold_s: float) -> str:
        """Record a membership change in progress, for up to `hold_s`; return the record's name."""
        name = f"{chat}:{new_id()}"
        key = self._keys.changing(self._keys.get_partition(chat))
        now_ms = await self._hot.get_time_ms(key)
        await self._hot.write("ZADD", key, now_ms + int(hold_s * 1000), name)
        return name

    async def end(self, name: str, *, has_unstored: bool = False) -> None:
        """Delete the record of a change that is complete or was not made.

        `has_unstored`: the chat may have unstored entries; `repair` checks this after `UNSTORED_S`.

        Guarantees:
            Atomic: the check is recorded when the record of the change is deleted.
        """
        chat = ChatId(name.partition(":")[0])
        key = self._keys.changing(self._keys.get_partition(chat))
        if not has_unstored:
            await self._hot.call("ZREM", key, name)
            return
        due_ms = await self._hot.get_time_ms(key) + int(UNSTORED_S * 1000)
        check = ("ZADD", key, "NX", due_ms, f"{chat}:unstored")
        await self._hot.transaction(("ZREM", key, name), check)

    async def list_overdue(self, partition: int) -> tuple[list[tuple[ChatId, str]], bool]:
        """Return `(overdue, has_pending)`: late changes, and whether any change is in progress.

        A late change has exceeded its `hold_s` (see `begin`); it is `(chat, record name)`.
        """
        (seconds, micros), items = await self._hot.snapshot(
            ("TIME",),
            ("ZRANGE", self._keys.changing(partition), 0, OVERDUE_MAX - 1, "WITHSCORES"),
        )
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        overdue = [
            (ChatId(name.partition(b":")[0].decode()), name.decode())
            for name, due_ms in zip(items[::2], items[1::2], strict=True)
            if float(due_ms) <= now_ms
        ]
        return overdue, bool(items)

    # a single change

    async def find_digest(self, chat: ChatId, sender: UserId, ref: Ref) -> str | None:
        """Return the digest of the sender's request with `ref`; None if it is not in Redis."""
        return (await self.find_reference(chat, sender, ref)).digest

    async def find_reference(self, chat: ChatId, sender: UserId, ref: Ref) -> ReferenceRecord:
        """Return the digest stored for `ref`, and whether Redis has the chat's refs."""
        key = reference_key(sender, ref)
        gate, reference = await self._hot.call("HMGET", self._keys.chat(chat), "gate", key)
        digest = None if reference is None else parse_ref_record(reference)[3]
        return ReferenceRecord(self._hot.is_loaded(chat, gate), digest)

    async def apply(self, change: MembershipChange) -> Seq | None:
        """Apply a change; return the seq of its first entry, or None if the chat is not loaded.

        Returns 0 if a later change has already been applied.

        Guarantees:
            After it returns, no commit uses the previous membership (guarantee P7).
            Idempotent: a change that is not newer than the last one has no effect.
        """
        change_input = build_change_input(self._hot, change)
        script = load_script("change_members")
        code, *first = await self._hot.run(
            script, change_input.keys, change_input.args, change_input.items, is_commit=True
        )
        return None if code == _CLOSED else Seq(int(first[0]) if first else 0)

    async def set_write_policy(self, chat: ChatId, version: int, write_policy: str) -> bool:
        """Set the write policy of chat version `version`; return False if the chat is not loaded.

        Guarantees:
            After it returns, no commit accepts a sender whom the policy forbids to write.
            Idempotent: a policy that is not newer than the last one has no effect.
        """
        partition = self._keys.get_partition(chat)
        reply = await self._hot.run(
            load_script("set_write_policy"),
            {"chat": self._keys.chat(chat)},
            {
                "epoch": self._hot.get_epoch(partition),
                "version": version,
                "write_policy": write_policy,
            },
        )
        return int(reply) != _CLOSED

    async def delete_notices(self, chat: ChatId, notices: Sequence[MembershipNotice]) -> None:
        if notices:
            key = self._keys.turnover(chat)
            await self._hot.call("HDEL", key, *(notice.field for notice in notices))

    async def find_head(self, chat: ChatId, users: Sequence[UserId] = ()) -> ChangedChatHead | None:
        """Return a chat's newest seq and last changes, and the joined seqs of members in `users`.

        None if the chat is not loaded. The read is atomic.
        """
        (gate, seq, stored, changed), *rows = await self._hot.snapshot(
            ("HMGET", self._keys.chat(chat), "gate", "seq", "stored", "changed"),
            *([("HMGET", self._keys.members(chat), *users)] if users else []),
        )
        if not self._hot.is_loaded(chat, gate):
            return None
        values = zip(users, rows[0] if rows else [], strict=True)
        return ChangedChatHead(
            Seq(int(seq)),
            Seq(int(stored or 0)),
            parse_changed(changed),
            {user: Seq(parse_member_status(value).joined) for user, value in values if value},
        )


class PeriodSource(Protocol):
    """Source of earlier membership periods."""

    async def find_periods(self, chat: ChatId, user: UserId) -> Periods: ...


@attrs.define(eq=False, repr=False)
class MemberCheck:
    """Checks members' read access. Without `periods`, earlier memberships are ignored."""

    _hot: HotClient
    _audiences: Audiences
    _periods: PeriodSource | None = None
    # The key has the first seq of the current membership: until it ends, the periods of
    # earlier memberships do not change.
    _cache: collections.OrderedDict[tuple[ChatId, UserId, Seq], Periods] = attrs.field(
        factory=collections.OrderedDict, init=False
    )

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        """Return the range of entries that a member is allowed to read.

        Guarantees:
            Atomic: the user was a member when `head` was read.
            Cost: one Redis round trip; the chat is loaded if necessary.

        Raises:
            NotFound: the chat does not exist, or the user is not a member.
        """
        hot, keys = self._hot, self._hot.keys
        for _ in range(LOADS_MAX):
            (gate, seq, history, stored, dead), member = await hot.snapshot(
                ("HMGET", keys.chat(chat), "gate", "seq", "history", "stored", "dead"),
                ("HGET", keys.members(chat), user),
            )
            if not hot.is_loaded(chat, gate):
                await self._audiences.get(chat)
                continue
            if member is None:
                break
            joined = parse_member_status(member).joined
            first = Seq(1 if history == b"all" else max(1, joined))
            return Reader(first, Seq(int(seq)), parse_stored(stored, dead).top)
        else:
            raise Unavailable(f"chat {chat}: could not be loaded; try again")
        raise NotFound(NOT_A_MEMBER)

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader:
        """Return `reader` with `periods`: the seq ranges of the member's earlier memberships.

        Guarantees:
            Cost: one GetItem; none if all entries are readable or the result is cached. The newest
                `PERIODS_CACHED_MAX` results are cached.

        Raises:
            Unavailable: DynamoDB does not respond.
        """
        if not reader.lacks_periods or self._periods is None:
            return reader
        key = (chat, user, reader.first)
        periods = self._cache.get(key)
        if periods is None:
            periods = await self._periods.find_periods(chat, user)
            if periods and periods[-1].last >= reader.first:
                # Redis has lost the entries that ended and began the memberships. Until the end of
                # the period is corrected, it may include entries from after the user had left.
                return reader._replace(periods=periods[:-1])
            self._cache[key] = periods
            if len(self._cache) > PERIODS_CACHED_MAX:
                self._cache.popitem(last=False)
        return reader._replace(periods=periods)
