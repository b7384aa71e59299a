"""Queue of companion sessions with pending work (a message to answer, or a changed message).

Data, in the partition of the session's chat: `{pN}:asked` (zset) holds the pending sessions, scored
by the time (ms) of the next attempt; `{pN}:asking:<chat>` (hash) holds the pending work of one
session. Both are removed when the work is done. `heard` in `{pN}:checkpoint` (hash) is the id of
the last backlog entry that has been scanned for pending work.

Invariant: the pending work from every backlog entry up to `heard`, and from every trimmed entry,
has been recorded. The assistant worker records it as entries arrive. The persist worker records the
rest before it trims the backlog, so trimming loses no message, even if no assistant worker runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from chatserver.domain.companion_ids import is_companion, is_session_chat
from chatserver.domain.ids import ChatId, Seq
from chatserver.features.companions.keys import CompanionKeys
from chatserver.hot.chats.persist_backlog import BacklogEntry, CommitEntry, HideEntry
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.keys import parse_entry_id
from chatserver.hot.redis.scripts import load_script
from chatserver.hot.worker_leases import Lease

# `record` calls the script after it has collected this many messages from whole backlog entries.
RECORDED_MAX = 200
# The `tail` of a message is its JSON after `ts`. It begins with `"chat":"<chat id>"`.
_CHAT_AT = len(b'"chat":"')
_CHAT_END = _CHAT_AT + 26  # a session's chat id is a ULID, which has 26 characters
_LAST_ENTRY_ID = f"{2**53 - 1}-0"
ENDED = 2**53 - 1  # value of `changed` which means that the session has ended
_CHANGES = frozenset({"edit", "delete"})


@dataclasses.dataclass(frozen=True, slots=True)
class PendingMessage:
    """Pending work found in a backlog entry.

    Exactly one is set: `newest`, the seq of a message to answer, or `changed`, the seq of a changed
    message.
    """

    entry: str
    chat: ChatId
    newest: int = 0
    changed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class StartedResponse:
    """A session's work in progress.

    `seq` is the seq of the message to answer, or 0 if there is none. `stop` is the seq of the
    message whose response must be stopped. `changed` is the seq of the first message that has been
    edited or deleted, or `ENDED` if the session has ended.
    """

    chat: ChatId
    seq: Seq
    stop: int
    changed: int
    tries: int

    @property
    def is_stopped(self) -> bool:
        """True if the user had already stopped the response when this work was started."""
        return self.stop >= self.seq > 0


class _Head(msgspec.Struct):
    """The message fields that determine whether a companion responds."""

    chat: str
    sender: str
    kind: str
    target: int = 0


_decode = msgspec.json.Decoder(_Head).decode


def find_pending(entry: BacklogEntry) -> Iterator[PendingMessage]:
    """Yield the pending work that a backlog entry creates; most entries create none."""
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
            continue  # invalid message: the persist worker moves it to the dead letters
        if head.target:
            if head.kind in _CHANGES:
                yield PendingMessage(entry.id, ChatId(chat), changed=head.target)
        elif not is_companion(head.sender) and head.kind not in ("member", "update"):
            yield PendingMessage(entry.id, ChatId(chat), newest=message.seq)


class PendingResponses:
    """The sessions with pending work in one partition."""

    def __init__(self, hot: HotClient, partition: int) -> None:
        self._hot = hot
        self._keys = CompanionKeys(hot.keys.partitions)
        self._partition = partition

    # Scanning the backlog

    async def get_checkpoint(self) -> str:
        """Return the id of the last backlog entry that any worker has scanned."""
        key = self._keys.checkpoint(self._partition)
        heard, done = await self._hot.call("HMGET", key, "heard", "id")
        entry_ids = [(name or b"0-0").decode() for name in (heard, done)]
        return max(entry_ids, key=parse_entry_id)

    async def record(self, entries: Sequence[BacklogEntry], *, is_whole: bool = True) -> int:
        """Record the pending work from backlog entries; return how many messages were recorded.

        `entries` must follow the last recorded entry without gaps. With `is_whole` False
        (persist worker), `heard` can remain before the last entries if these have no pending work.

        Guarantees:
            Idempotent: entries up to `heard` are skipped.
            Atomic: work is recorded and `heard` advanced in one step.
        """
        if not entries:
            return 0
        count, batch = 0, list[PendingMessage]()
        for entry in entries:
            if isinstance(entry, HideEntry):
                await self._record_hidden(entry)
                continue
            batch += find_pending(entry)
            if len(batch) >= RECORDED_MAX:
                count += await self._record(entry.id, batch)
                batch = []
        if batch or is_whole:
            count += await self._record(entries[-1].id, batch)
        return count

    async def _record_hidden(self, entry: HideEntry) -> None:
        """Record that a user deleted a message for themselves only."""
        if is_session_chat(entry.chat):
            other = PendingResponses(self._hot, self._keys.get_partition(entry.chat))
            pending = PendingMessage(_LAST_ENTRY_ID, entry.chat, changed=entry.seq)
            await other._record("0-0", [pending])

    async def record_ended(self, chat: ChatId) -> None:
        """Record that a session has ended. Idempotent. Raises Unavailable."""
        other = PendingResponses(self._hot, self._keys.get_partition(chat))
        await other._record("0-0", [PendingMessage(_LAST_ENTRY_ID, chat, changed=ENDED)])

    async def is_pending(self, chat: ChatId) -> bool:
        """Return whether a session has pending work. Its chat can be in any partition."""
        requests = self._keys.pending(self._keys.get_partition(chat))
        return await self._hot.call("ZSCORE", requests, chat) is not None

    async def _record(self, upto: str, batch: Iterable[PendingMessage]) -> int:
        keys = self._keys
        recorded: int = await self._hot.run(
            load_script("record_pending_responses"),
            {
                "checkpoint": keys.checkpoint(self._partition),
                "asked": keys.pending(self._partition),
            },
            {"upto": upto},
            [
                {
                    "asking": keys.response(pending.chat),
                    "chat": pending.chat,
                    "id": pending.entry,
                    "newest": pending.newest,
                    "changed": pending.changed,
                }
                for pending in batch
            ],
        )
        return recorded

    # Responding

    async def list_due(self, limit: int) -> tuple[list[ChatId], bool]:
        """Return up to `limit` sessions to process now, and whether any session is pending."""
        key = self._keys.pending(self._partition)
        (seconds, micros), items = await self._hot.snapshot(
            ("TIME",), ("ZRANGE", key, 0, limit - 1, "WITHSCORES")
        )
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        scored = zip(items[::2], items[1::2], strict=True)
        due = [ChatId(name.decode()) for name, due_ms in scored if float(due_ms) <= now_ms]
        return due, bool(items)

    async def count(self) -> int:
        """Return how many sessions are pending or in progress."""
        return int(await self._hot.call("ZCARD", self._keys.pending(self._partition)))

    async def start(self, lease: Lease, chat: ChatId) -> StartedResponse | None:
        """Start work on a session; return None if the lease has been lost.

        Guarantees:
            Until `finish` is called, another call of `start` returns the same message.
        """
        reply = await self._hot.run(
            load_script("start_response"),
            {
                "lease": self._keys.lease(self._partition, "assistant"),
                "asking": self._keys.response(chat),
            },
            {"token": lease.token},
        )
        if not reply:
            return None
        seq, stop, changed, tries = reply
        return StartedResponse(chat, Seq(seq), stop, changed, tries)

    async def finish(self, started: StartedResponse) -> bool:
        """Remove the finished work of a session; return whether more is pending."""
        keys = self._keys
        remaining: int = await self._hot.run(
            load_script("finish_response"),
            {
                "asking": keys.response(started.chat),
                "asked": keys.pending(self._partition),
            },
            {"chat": started.chat, "seq": started.seq, "changed": started.changed},
        )
        return bool(remaining)

    async def schedule_retry(self, started: StartedResponse, due_ms: int) -> None:
        """Set the time of a session's next attempt (`due_ms`), and count the failed attempt."""
        keys = self._keys
        await self._hot.transaction(
            ("ZADD", keys.pending(self._partition), "XX", due_ms, started.chat),
            ("HINCRBY", keys.response(started.chat), "tries", 1),
        )

    async def is_stopped(self, started: StartedResponse) -> bool:
        """Return whether the user has stopped the response."""
        stop = await self._hot.call("HGET", self._keys.response(started.chat), "stop")
        return int(stop or 0) >= started.seq
