"""Looks for one message in Redis, and at what Redis knows of it. Reads only, opens no chat.

A message that is not persisted is in the backlog, whose entries are found by time; one of late is
in the log of its chat, and the chat among those in which something happened since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId
from chatserver.domain.whereabouts import Found, InHot, Recipient, Source, Waiting
from chatserver.hot.backlog import Backlog, CommitEntry, parse_entry
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.client import HotClient
from chatserver.hot.inbox import Inboxes
from chatserver.protocol import codec

PAGE = 500
PAGES_MAX = 400  # of one partition's backlog, and of its dead letters
LOG_PAGE = 200
MEMBERS_AT_ONCE = 8


class HotPlaces:
    """Reads the hot tier for `chatserver.service.whereabouts`."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = hot.keys
        self._log = ChatLog(hot)
        self._inboxes = Inboxes(hot)

    # where is it?

    async def find_waiting(self, mid: Mid, from_ms: int) -> tuple[Found, Waiting] | None:
        """Return the message if it waits to be persisted, or could not be.

        `from_ms`: no entry of before then can have it.

        Raises:
            Unavailable: Redis does not answer.
        """
        partitions = range(self._keys.partitions)
        for find in (self._find_in_backlog, self._find_dead):
            for some in await asyncio.gather(*(find(n, mid, from_ms) for n in partitions)):
                if some is not None:
                    return some
        return None

    async def _find_in_backlog(
        self, partition: int, mid: Mid, from_ms: int
    ) -> tuple[Found, Waiting] | None:
        after, upto = f"{from_ms}-0", await Backlog(self._hot, partition).get_checkpoint()
        after = max(f"({upto}", after, key=_place)
        for _ in range(PAGES_MAX):
            reply = await self._hot.call(
                "XRANGE", self._keys.backlog(partition), after, "+", "COUNT", PAGE
            )
            for name, fields in reply:
                entry = parse_entry(name, fields)
                for raw in entry.messages if isinstance(entry, CommitEntry) else ():
                    if (found := _as_found(mid, raw.seq, raw.ts, raw.tail, "backlog")) is not None:
                        since_ms = int(entry.id.partition("-")[0])
                        return found, Waiting(f"{partition}:{entry.id}", since_ms, "")
            if len(reply) < PAGE:
                return None
            after = f"({reply[-1][0].decode()}"
        return None

    async def _find_dead(
        self, partition: int, mid: Mid, from_ms: int
    ) -> tuple[Found, Waiting] | None:
        backlog, after = Backlog(self._hot, partition), f"{from_ms}-0"
        for _ in range(PAGES_MAX):
            letters = await backlog.list_dead(after, PAGE)
            for letter in letters:
                raw = letter.message
                if (found := _as_found(mid, raw.seq, raw.ts, raw.tail, "backlog")) is not None:
                    since_ms = int(letter.entry.partition("-")[0])
                    return found, Waiting(letter.place, since_ms, letter.why)
            if len(letters) < PAGE:
                return None
            after = letters[-1].entry
        return None

    async def list_active(self, since_s: int, limit: int) -> list[ChatId]:
        """Return chats in which something was persisted since, those first that rested soonest."""
        found: list[tuple[float, ChatId]] = []
        for partition in range(self._keys.partitions):
            reply = await self._hot.call(
                "ZRANGEBYSCORE", self._keys.idle(partition), since_s, "+inf",
                "WITHSCORES", "LIMIT", 0, limit,
            )  # fmt: skip
            pairs = zip(reply[::2], reply[1::2], strict=True)
            found += [(float(score), ChatId(name.decode())) for name, score in pairs]
        return [chat for _, chat in sorted(found)[:limit]]

    async def find_in_log(self, chat: ChatId, mid: Mid, from_ts: int) -> Found | None:
        """Return the message if the chat's log has it; no entry below `from_ts` can be it."""
        before: Seq | None = None
        while True:
            entries = await self._log.list_before(chat, before, LOG_PAGE)
            for entry in entries:
                found = _as_found(mid, entry.seq, entry.ts, entry.tail, "hot")
                if found is not None:
                    return found
            if not entries or entries[0].ts < from_ts or entries[0].seq <= 1:
                return None
            before = entries[0].seq

    # what is known of it?

    async def look(self, chat: ChatId, seq: Seq) -> InHot:
        """Return what Redis has of a chat and an entry of it."""
        keys = self._keys
        (head, fields, since, entries, watchers) = await asyncio.gather(
            self._log.get_head(chat),
            self._hot.call("HMGET", keys.chat(chat), "done", "large"),
            self._hot.call("ZSCORE", keys.undelivered(keys.partition_of(chat)), chat),
            self._log.list_range(chat, seq, seq),
            self._hot.call("ZCARD", keys.watchers(chat)),
        )
        done, large = fields
        return InHot(
            is_open=head.is_open,
            head=head.seq,
            stored=head.stored,
            served=int(done or 0),
            is_large=int(large or 0) > 0,
            is_in_log=bool(entries),
            undelivered_since_ms=None if since is None else int(float(since)),
            gateways=int(watchers),
        )

    async def list_members(self, chat: ChatId, limit: int) -> tuple[int, dict[UserId, int]]:
        """Return how many members a chat has that Redis knows, and since when some joined."""
        key = self._keys.members(chat)
        count = int(await self._hot.call("HLEN", key))
        members: dict[UserId, int] = {}
        cursor = b"0"
        while len(members) < min(limit, count):
            cursor, page = await self._hot.call("HSCAN", key, cursor, "COUNT", limit)
            for user, standing in zip(page[::2], page[1::2], strict=True):
                members[UserId(user.decode())] = int(standing.split(b":")[1])
            if cursor == b"0":
                break
        return count, dict(sorted(members.items())[:limit])

    async def look_at(
        self, chat: ChatId, seq: Seq, sender: str, members: Sequence[tuple[UserId, int]]
    ) -> list[Recipient]:
        """Return how far an entry has come to members, each with the seq at which he joined.

        Cost: four calls for each member, and up to `inbox_max` entries of his inbox.
        """
        slots = asyncio.Semaphore(MEMBERS_AT_ONCE)

        async def look(user: UserId, joined: int) -> Recipient:
            async with slots:
                place, (read, received), (gateways,) = await asyncio.gather(
                    self._find_in_inbox(user, chat, seq),
                    self._inboxes.get_marks(user, chat),
                    self._inboxes.list_gateways([user]),
                )
            is_sender = user == sender
            return Recipient(
                user, joined, is_sender, place, received >= seq, read >= seq, len(gateways)
            )

        return list(await asyncio.gather(*(look(*member) for member in members)))

    async def _find_in_inbox(self, user: UserId, chat: ChatId, seq: Seq) -> int | None:
        limit = self._hot.settings.inbox_max
        reply = await self._hot.call("XREVRANGE", self._keys.inbox(user), "+", "-", "COUNT", limit)
        wanted = [chat.encode(), b"%d" % seq]
        return next((int(name.split(b"-")[0]) for name, fields in reply if fields == wanted), None)


def _as_found(mid: Mid, seq: int, ts: int, tail: bytes, source: Source) -> Found | None:
    """Return the place of an entry if it is the message. Cheap for the many that are not."""
    if f'"mid":"{mid}"'.encode() not in tail:
        return None
    try:
        message = codec.decode_message(codec.join_message(seq, ts, tail))
    except msgspec.MsgspecError:
        return None
    if message.mid != mid:
        return None
    return Found(ChatId(message.chat), Seq(seq), Ts(ts), message.sender, message.kind, source)


def _place(entry: str) -> tuple[int, int]:
    ms, _, number = entry.removeprefix("(").partition("-")
    return int(ms), int(number)
