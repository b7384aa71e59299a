"""Which sessions with companions wait for an answer: noted from the backlog, kept until answered.

Data, in the partition of the session's chat: ``{pN}:asked`` (zset) lists the sessions, and when
each is to be looked at; ``{pN}:asking:<chat>`` (hash) has what one waits for. Both end with the
answer. ``heard`` of ``{pN}:checkpoint`` says how far the backlog was looked through.

Invariant: what lies in the backlog up to `heard`, or has left it, is noted. The worker that answers
notes what comes, at once; the one that persists notes what nobody has yet, before it trims. So the
trim need not wait for anybody, and no message to a companion is forgotten with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import redis.asyncio
import redis.exceptions

from chatserver.domain.companions import is_companion, is_session_chat
from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import Unavailable
from chatserver.hot.backlog import BacklogEntry, CommitEntry, HideEntry, parse_entry
from chatserver.hot.client import HotClient
from chatserver.hot.leases import Lease
from chatserver.hot.scripts import load_script

NOTED_MAX = 200  # sessions in one call of the script, unless one entry has more
_CHAT_AT = len(b'"chat":"')  # every entry begins so
_CHAT_END = _CHAT_AT + 26  # of a ULID: no other chat's id is as long
_AFTER_ALL = f"{2**53 - 1}-0"
_CHANGES = frozenset({"edit", "delete"})


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What an entry of the backlog has for a session: a message to answer, or a changed one."""

    entry: str
    chat: ChatId
    newest: int = 0
    changed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """What is to be done for a session. `seq`: the message to answer, 0: none.

    `stop`: the answer to that message is to end. `changed`: the first message that was changed.
    """

    chat: ChatId
    seq: Seq
    stop: int
    changed: int
    tries: int

    @property
    def is_stopped(self) -> bool:
        """True if the answer was stopped before it began again."""
        return self.stop >= self.seq > 0


class _Head(msgspec.Struct):
    """Of an entry of a chat, as much as tells whether a companion is to answer."""

    chat: str
    sender: str
    kind: str
    target: int = 0


_decode = msgspec.json.Decoder(_Head).decode


def find_asked(entry: BacklogEntry) -> Iterator[Asked]:
    """Yield what an entry of the backlog has for sessions; nearly always nothing, and cheaply."""
    if not isinstance(entry, CommitEntry):
        return
    for message in entry.messages:
        tail = message.tail
        if tail[_CHAT_END : _CHAT_END + 1] != b'"':
            continue
        chat = tail[_CHAT_AT:_CHAT_END].decode("ascii", "replace")
        if not is_session_chat(chat):
            continue
        try:
            head = _decode(b"{" + tail)
        except msgspec.MsgspecError:
            continue  # whoever persists it buries it
        if head.target:
            if head.kind in _CHANGES:
                yield Asked(entry.id, ChatId(chat), changed=head.target)
        elif not is_companion(head.sender) and head.kind not in ("member", "update"):
            yield Asked(entry.id, ChatId(chat), newest=message.seq)


class AskedSessions:
    """The sessions of one partition that wait."""

    def __init__(self, hot: HotClient, partition: int) -> None:
        self._hot = hot
        self._partition = partition
        self._backlog = hot.keys.backlog(partition)
        self._client: redis.asyncio.Redis | None = None  # made when it is first waited for entries

    # from the backlog

    async def get_heard(self) -> str:
        """Return the last entry of the backlog that was looked at, by whomever."""
        key = self._hot.keys.checkpoint(self._partition)
        heard, done = await self._hot.call("HMGET", key, "heard", "id")
        return _later(heard, done)

    async def list_after(self, entry_id: str, limit: int) -> list[BacklogEntry]:
        """Return the entries after `entry_id` that are still there, oldest first."""
        reply = await self._hot.call("XRANGE", self._backlog, f"({entry_id}", "+", "COUNT", limit)
        return [parse_entry(name, fields) for name, fields in reply]

    async def wait_after(self, entry_id: str, block_ms: int) -> None:
        """Return when there is an entry after `entry_id`, or after `block_ms`.

        Raises:
            Unavailable: Redis went away.
        """
        if self._client is None:
            self._client = self._hot.blocking_client(self._backlog)
        try:
            read = self._client.xread({self._backlog: entry_id}, count=1, block=block_ms)
            await self._hot.within(read)
        except (redis.exceptions.RedisError, OSError) as exc:
            raise Unavailable(f"redis at {self._hot.name}: {exc}") from exc

    async def close(self) -> None:
        """Close the connection that waits."""
        if self._client is not None:
            await self._client.aclose()

    async def note(self, entries: Sequence[BacklogEntry], *, is_whole: bool = True) -> int:
        """Note what entries have for sessions, and that they were looked at; return how many.

        `entries` follow, without a hole, on what was noted before. With `is_whole` False nothing
        is written where they have nothing: who persists need not say that each was looked at.

        Guarantees:
            Idempotent: what lies up to `heard` is passed over.
            Atomic: `heard` moves with what it covers.
        """
        if not entries:
            return 0
        count, batch = 0, list[Asked]()
        for entry in entries:
            if isinstance(entry, HideEntry):
                await self._note_hidden(entry)
                continue
            batch += find_asked(entry)
            if len(batch) >= NOTED_MAX:
                count += await self._note(entry.id, batch)
                batch = []
        if batch or is_whole:
            count += await self._note(entries[-1].id, batch)
        return count

    async def _note_hidden(self, entry: HideEntry) -> None:
        """Note a message that the user deleted for himself: in the partition of its chat."""
        if is_session_chat(entry.chat):
            elsewhere = AskedSessions(self._hot, self._hot.keys.partition_of(entry.chat))
            one = Asked(_AFTER_ALL, entry.chat, changed=entry.seq)
            await elsewhere._note("0-0", [one])

    async def _note(self, upto: str, batch: Iterable[Asked]) -> int:
        keys = self._hot.keys
        noted: int = await self._hot.run(
            load_script("note_asked"),
            {
                "checkpoint": keys.checkpoint(self._partition),
                "asked": keys.asked(self._partition),
            },
            {"upto": upto},
            [
                {
                    "asking": keys.asking(one.chat),
                    "chat": one.chat,
                    "id": one.entry,
                    "newest": one.newest,
                    "changed": one.changed,
                }
                for one in batch
            ],
        )
        return noted

    # to the answer

    async def list_due(self, now_ms: int, limit: int) -> list[ChatId]:
        """Return sessions that are to be looked at, those that wait longest first."""
        key = self._hot.keys.asked(self._partition)
        reply = await self._hot.call("ZRANGEBYSCORE", key, "-inf", now_ms, "LIMIT", 0, limit)
        return [ChatId(name.decode()) for name in reply]

    async def count(self) -> int:
        """Return how many sessions wait, or are being answered."""
        return int(await self._hot.call("ZCARD", self._hot.keys.asked(self._partition)))

    async def begin(self, lease: Lease, chat: ChatId) -> Begun | None:
        """Begin with a session; None: the lease is lost.

        Guarantees:
            What was begun is begun again, for the same message, until it is ended.
        """
        reply = await self._hot.run(
            load_script("begin_turn"),
            {
                "lease": self._hot.keys.lease(self._partition, "assistant"),
                "asking": self._hot.keys.asking(chat),
            },
            {"token": lease.token},
        )
        if not reply:
            return None
        seq, stop, changed, tries = reply
        return Begun(chat, Seq(seq), stop, changed, tries)

    async def end(self, begun: Begun) -> bool:
        """Say that a session has what it waited for; True if it waits for more by now."""
        keys = self._hot.keys
        more: int = await self._hot.run(
            load_script("end_turn"),
            {"asking": keys.asking(begun.chat), "asked": keys.asked(self._partition)},
            {"chat": begun.chat, "seq": begun.seq, "changed": begun.changed},
        )
        return bool(more)

    async def postpone(self, begun: Begun, due_ms: int) -> None:
        """Look at a session again later."""
        keys = self._hot.keys
        await self._hot.transaction(
            ("ZADD", keys.asked(self._partition), "XX", due_ms, begun.chat),
            ("HINCRBY", keys.asking(begun.chat), "tries", 1),
        )

    async def is_stopped(self, begun: Begun) -> bool:
        """Say whether somebody asked that the answer ends."""
        stop = await self._hot.call("HGET", self._hot.keys.asking(begun.chat), "stop")
        return int(stop or 0) >= begun.seq


def _later(*entry_ids: bytes | None) -> str:
    places = [tuple(map(int, (name or b"0-0").split(b"-"))) for name in entry_ids]
    ms, n = max(places)
    return f"{ms}-{n}"
