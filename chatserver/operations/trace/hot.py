"""Redis lookups for `chatserver trace`. Read-only; chats are not loaded.

A message that has not been persisted yet is in a backlog. A recent message is in its chat's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.persist_backlog import Backlog, CommitEntry, parse_entry
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users import inbox
from chatserver.hot.users.inbox import Inboxes
from chatserver.operations.trace.model import (
    InHot,
    LocatedMessage,
    Recipient,
    Source,
    WaitingMessage,
)
from chatserver.protocol import codec
from chatserver.task_groups import map_concurrently

PAGE = 500
PAGES_MAX = 400  # maximum pages read from a partition's backlog, and from its dead letters
LOG_PAGE = 200
MEMBERS_AT_ONCE = 8


class HotTrace:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = hot.keys
        self._log = ChatLog(hot)
        self._inboxes = Inboxes(hot)

    async def find_waiting(
        self, mid: Mid, from_ms: int
    ) -> tuple[LocatedMessage, WaitingMessage] | None:
        """Return the message if it is in a backlog or is a dead letter.

        Searches only entries added at or after `from_ms`.

        Raises:
            Unavailable: Redis does not respond.
        """
        partitions = range(self._keys.partitions)
        for find in (self._find_in_backlog, self._find_dead):
            for matches in await asyncio.gather(*(find(n, mid, from_ms) for n in partitions)):
                if matches is not None:
                    return matches
        return None

    async def _find_in_backlog(
        self, partition: int, mid: Mid, from_ms: int
    ) -> tuple[LocatedMessage, WaitingMessage] | None:
        after, upto = f"{from_ms}-0", await Backlog(self._hot, partition).get_checkpoint()
        after = max(f"({upto}", after, key=_parse_entry_id)
        for _ in range(PAGES_MAX):
            reply = await self._hot.call(
                "XRANGE", self._keys.backlog(partition), after, "+", "COUNT", PAGE
            )
            for name, fields in reply:
                entry = parse_entry(name, fields)
                for raw in entry.messages if isinstance(entry, CommitEntry) else ():
                    match = _match_message(mid, raw.seq, raw.ts, raw.tail, "backlog")
                    if match is not None:
                        since_ms = int(entry.id.partition("-")[0])
                        return match, WaitingMessage(f"{partition}:{entry.id}", since_ms, "")
            if len(reply) < PAGE:
                return None
            after = f"({reply[-1][0].decode()}"
        return None

    async def _find_dead(
        self, partition: int, mid: Mid, from_ms: int
    ) -> tuple[LocatedMessage, WaitingMessage] | None:
        backlog, after = Backlog(self._hot, partition), f"{from_ms}-0"
        for _ in range(PAGES_MAX):
            letters = await backlog.list_dead(after, PAGE)
            for letter in letters:
                raw = letter.message
                if (match := _match_message(mid, raw.seq, raw.ts, raw.tail, "backlog")) is not None:
                    since_ms = int(letter.entry.partition("-")[0])
                    return match, WaitingMessage(letter.id, since_ms, letter.why)
            if len(letters) < PAGE:
                return None
            after = letters[-1].entry
        return None

    async def list_active(self, since_s: int, limit: int) -> list[ChatId]:
        """Return chats that have been active since `since_s`, least recently active first."""
        active: list[tuple[float, ChatId]] = []
        for partition in range(self._keys.partitions):
            reply = await self._hot.call(
                "ZRANGEBYSCORE", self._keys.idle(partition), since_s, "+inf",
                "WITHSCORES", "LIMIT", 0, limit,
            )  # fmt: skip
            pairs = zip(reply[::2], reply[1::2], strict=True)
            active += [(float(score), ChatId(name.decode())) for name, score in pairs]
        return [chat for _, chat in sorted(active)[:limit]]

    async def find_in_log(self, chat: ChatId, mid: Mid, from_ts: int) -> LocatedMessage | None:
        """Return the message if it is in the chat's log. Searches entries from `from_ts` on."""
        before: Seq | None = None
        while True:
            entries = await self._log.list_before(chat, before, LOG_PAGE)
            for entry in entries:
                match = _match_message(mid, entry.seq, entry.ts, entry.tail, "hot")
                if match is not None:
                    return match
            if not entries or entries[0].ts < from_ts or entries[0].seq <= 1:
                return None
            before = entries[0].seq

    async def get_state(self, chat: ChatId, seq: Seq) -> InHot:
        keys = self._keys
        (head, fields, since, entries, watchers) = await asyncio.gather(
            self._log.get_head(chat),
            self._hot.call("HMGET", keys.chat(chat), "gate", "done", "large"),
            self._hot.call("ZSCORE", keys.undelivered(keys.get_partition(chat)), chat),
            self._log.list_range(chat, seq, seq),
            self._hot.call("ZCARD", keys.watchers(chat)),
        )
        gate, done, large = fields
        is_pending = (gate or b"").endswith(b":p")
        return InHot(
            is_open=head.is_open,
            head=head.seq,
            stored=head.stored,
            served=int(done or 0) if is_pending else head.seq,
            is_large=int(large or 0) > 0,
            is_in_log=bool(entries),
            undelivered_since_ms=None if since is None else int(float(since)),
            gateways=int(watchers),
        )

    async def list_members(self, chat: ChatId, limit: int) -> tuple[int, dict[UserId, int]]:
        """Return the member count, and the seq at which each of up to `limit` members joined."""
        key = self._keys.members(chat)
        count = int(await self._hot.call("HLEN", key))
        members: dict[UserId, int] = {}
        cursor = b"0"
        while len(members) < min(limit, count):
            cursor, page = await self._hot.call("HSCAN", key, cursor, "COUNT", limit)
            for user, position in zip(page[::2], page[1::2], strict=True):
                members[UserId(user.decode())] = int(position.split(b":")[1])
            if cursor == b"0":
                break
        return count, dict(sorted(members.items())[:limit])

    async def list_recipients(
        self, chat: ChatId, seq: Seq, sender: str, members: Sequence[tuple[UserId, int]]
    ) -> list[Recipient]:
        """Return an entry's delivery state for each of `members`, which are `(user, joined)` pairs.

        Cost: four calls per member, one of which reads up to `inbox_max` inbox entries.
        """

        async def load(member: tuple[UserId, int]) -> Recipient:
            user, joined = member
            position, marks, (gateways,) = await asyncio.gather(
                self._find_in_inbox(user, chat, seq),
                self._inboxes.get_marks(user, chat),
                self._inboxes.list_gateways([user]),
            )
            return Recipient(
                user=user,
                joined=joined,
                is_sender=user == sender,
                inbox=position,
                has_received=marks.received >= seq,
                has_read=marks.read >= seq,
                gateways=len(gateways),
            )

        return await map_concurrently(
            load, members, in_flight_max=MEMBERS_AT_ONCE, name="trace-recipient"
        )

    async def _find_in_inbox(self, user: UserId, chat: ChatId, seq: Seq) -> int | None:
        limit = self._hot.settings.inbox_max
        reply = await self._hot.call("XREVRANGE", self._keys.inbox(user), "+", "-", "COUNT", limit)
        entries = (event for entry in reply for event in inbox.parse_entry(*entry))
        return next((event.seq for event in entries if (event.chat, event.cs) == (chat, seq)), None)


def _match_message(
    mid: Mid, seq: int, ts: int, tail: bytes, source: Source
) -> LocatedMessage | None:
    """Return the entry if it is message `mid`, else None. Fast if it is another message."""
    if f'"mid":"{mid}"'.encode() not in tail:
        return None
    try:
        message = codec.decode_message(codec.join_message(seq, ts, tail))
    except msgspec.MsgspecError:
        return None
    if message.mid != mid:
        return None
    return LocatedMessage(
        chat=ChatId(message.chat),
        seq=Seq(seq),
        ts=Ts(ts),
        sender=message.sender,
        kind=message.kind,
        source=source,
    )


def _parse_entry_id(entry: str) -> tuple[int, int]:
    ms, _, number = entry.removeprefix("(").partition("-")
    return int(ms), int(number)
