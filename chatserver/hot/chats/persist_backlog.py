"""Backlog of committed entries that have not been persisted yet: one stream per partition.

Data: ``{pN}:backlog`` (stream). Each commit call adds one entry. Its field ``g`` is the gateway.
For each message, it has a field ``<seq>:<ts>``; the value is ``<receiver>\\n`` and then the tail,
which is the message's JSON without seq and ts.

- The receiver is the other user of a direct chat. It is empty in other chats.
- For a change to a message (edit, delete, reaction), the receiver is replaced by two timestamps
  (`` <ts> <ts>``): of the message, and of its previous edit if this change deletes that edit's
  text, otherwise 0.
- A ``!`` before the receiver means that the sender waits until the message is stored.

Other entries record moved read marks (``c`` chat, ``u`` user, ``r`` read, ``d`` received), or a
message that a user deleted for themselves (``c``, ``u``, ``x`` seq).

``{pN}:checkpoint`` contains the id of the last persisted entry. Only the holder of the ``persist``
lease moves it. Only persisted entries are trimmed; the stream has no MAXLEN. ``{pN}:dead`` has
entries that could not be persisted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import msgspec

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, Ts, UserId
from chatserver.domain.messages import REF_TTL_S
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.keys import parse_entry_id
from chatserver.hot.redis.scripts import Value, load_script
from chatserver.hot.worker_leases import Lease

BACKLOG_PER_CHAT_MAX = 100_000  # maximum unpersisted messages per chat; more are refused
DEAD_MAX = 100_000
PAGE = 200  # maximum entries per read of `has_entry`; an entry has up to 128 messages
PRESSURE_LOG_MAX = 50
AWAITED = b"!"  # prefix of the receiver if the sender waits for `stored`; no user id contains it


class CommittedMessage(msgspec.Struct, frozen=True, gc=False):
    """A committed message, or another chat entry.

    For an entry that changes a message, `target_ts` is the timestamp of that message. If the entry
    deletes the text of the message's previous edit, `replaced_ts` is the timestamp of that edit,
    otherwise 0. `is_awaited`: the sender waits until the entry is stored.
    """

    seq: Seq
    ts: Ts
    receiver: UserId | None
    tail: bytes
    target_ts: int = 0
    replaced_ts: int = 0
    is_awaited: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class CommitEntry:
    """The messages of one commit call, in order."""

    id: str
    gateway: GatewayId
    messages: list[CommittedMessage]

    @property
    def size(self) -> int:
        """The number of messages that the entry adds to the backlog."""
        return len(self.messages)


@dataclasses.dataclass(frozen=True, slots=True)
class MarkEntry:
    """A user's read marks in a chat, after they moved forward."""

    id: str
    chat: ChatId
    user: UserId
    read: Seq
    received: Seq
    size: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class HideEntry:
    """A message that a user deleted for themselves."""

    id: str
    chat: ChatId
    user: UserId
    seq: Seq
    size: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be persisted, with the reason."""

    partition: int
    entry: str
    message: CommittedMessage
    why: str

    @property
    def id(self) -> str:
        """The id shown to operators: the partition and the stream entry id."""
        return f"{self.partition}:{self.entry}"


BacklogEntry = CommitEntry | MarkEntry | HideEntry


def parse_entry(name: bytes, fields: list[bytes]) -> BacklogEntry:
    if fields[0] == b"g":
        messages = []
        for position, blob in zip(fields[2::2], fields[3::2], strict=True):
            seq, _, ts = position.partition(b":")
            receiver, _, tail = blob.partition(b"\n")
            if receiver[:1] == b" ":
                target, replaced = map(int, receiver.split())
                messages.append(
                    CommittedMessage(
                        seq=Seq(int(seq)),
                        ts=Ts(int(ts)),
                        receiver=None,
                        tail=tail,
                        target_ts=target,
                        replaced_ts=replaced,
                    )
                )
                continue
            is_awaited = receiver[:1] == AWAITED
            receiver = receiver.removeprefix(AWAITED)
            to = UserId(receiver.decode()) if receiver else None
            messages.append(
                CommittedMessage(Seq(int(seq)), Ts(int(ts)), to, tail, is_awaited=is_awaited)
            )
        return CommitEntry(name.decode(), GatewayId(fields[1].decode()), messages)
    if fields[4] == b"x":
        chat, user, hidden = fields[1::2]
        return HideEntry(
            name.decode(), ChatId(chat.decode()), UserId(user.decode()), Seq(int(hidden))
        )
    _, chat, _, user, _, read, _, received = fields
    return MarkEntry(
        name.decode(),
        ChatId(chat.decode()),
        UserId(user.decode()),
        Seq(int(read)),
        Seq(int(received)),
    )


def next_entry_id(entry_id: str) -> str:
    """Return the smallest id above `entry_id`."""
    ms, _, n = entry_id.partition("-")
    return f"{ms}-{int(n) + 1}"


def _parse_dead(partition: int, name: str, fields: list[bytes]) -> DeadLetter:
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    receiver = values[b"r"].decode()
    message = CommittedMessage(
        Seq(int(values[b"s"])),
        Ts(int(values[b"t"])),
        UserId(receiver) if receiver else None,
        values[b"m"],
    )
    return DeadLetter(partition, name, message, values[b"why"].decode(errors="replace"))


class Backlog:
    """The backlog of one partition, for the persist worker."""

    def __init__(self, hot: HotClient, partition: int) -> None:
        self._hot = hot
        self._partition = partition
        self._key = hot.keys.backlog(partition)

    def _get_keys(self, *names: str) -> dict[str, Value]:
        """Return the keys for a script that checks the ``persist`` lease."""
        keys = self._hot.keys
        return {"lease": keys.lease(self._partition, "persist"), **keys.of(self._partition, *names)}

    async def get_checkpoint(self) -> str:
        """Return the id of the last persisted entry, or ``0-0``."""
        return await self._get_checkpoint_field("id")

    async def _get_checkpoint_field(self, name: str) -> str:
        key = self._hot.keys.checkpoint(self._partition)
        value: bytes | None = await self._hot.call("HGET", key, name)
        return value.decode() if value else "0-0"

    async def get_persisting_id(self) -> str:
        """Return the id last stored by `record_persisting_id`; ``0-0`` if there is none."""
        return await self._get_checkpoint_field("ahead")

    async def record_persisting_id(self, lease: Lease, entry_id: str) -> bool:
        """Record that entries after the checkpoint, up to `entry_id`, are being persisted.

        Return False if the lease is lost.
        """
        recorded: int = await self._hot.run(
            load_script("record_persisting_id"),
            self._get_keys("checkpoint"),
            {"token": lease.token, "id": entry_id},
        )
        return bool(recorded)

    async def get_progress(self) -> dict[ChatId, int]:
        """Return the seqs that `record_persisted_seqs` has stored, by chat."""
        reply = await self._hot.call("HGETALL", self._hot.keys.progress(self._partition))
        values = dict(zip(reply[::2], reply[1::2], strict=True))
        return {ChatId(chat.decode()): int(seq) for chat, seq in values.items()}

    async def record_persisted_seqs(
        self, lease: Lease, tops: Mapping[ChatId, Seq], epoch: Epoch
    ) -> bool:
        """Record up to which seq chats are persisted, if this is past the checkpoint.

        `epoch`: the one in which the entries were read. Return False if it has ended, because the
        seqs may be those of other entries now, or if the lease is lost. `checkpoint` deletes these
        seqs once the checkpoint has reached the id from `record_persisting_id`.
        """
        recorded: int = await self._hot.run(
            load_script("record_persisted_seqs"),
            self._get_keys("epoch", "progress"),
            {"token": lease.token, "epoch": epoch},
            [{"chat": chat, "upto": upto} for chat, upto in tops.items()],
        )
        return bool(recorded)

    async def list_between(self, first: str, last: str) -> list[BacklogEntry]:
        """Return the entries from `first` to `last`, inclusive, oldest first."""
        reply = await self._hot.call("XRANGE", self._key, first, last)
        return [parse_entry(name, fields) for name, fields in reply]

    async def list_after(self, entry_id: str, limit: int) -> list[BacklogEntry]:
        """Return the entries after `entry_id`, oldest first."""
        reply = await self._hot.call("XRANGE", self._key, f"({entry_id}", "+", "COUNT", limit)
        return [parse_entry(name, fields) for name, fields in reply]

    async def has_entry(self, chat: ChatId, first: int, last: int) -> bool:
        """Return whether an entry of `chat` with a seq in ``[first, last]`` is not persisted yet.

        Guarantees:
            Cost: reads the backlog up to that entry or its end, `PAGE` entries per call.
        """
        prefix, position = b'"chat":"%b",' % chat.encode(), await self.get_checkpoint()
        # Entries that are added meanwhile are not read: there may always be more.
        newest = parse_entry_id(await self.get_newest())
        while parse_entry_id(position) < newest:
            entries = await self.list_after(position, PAGE)
            if not entries:
                break
            for entry in entries:
                if isinstance(entry, CommitEntry) and any(
                    first <= message.seq <= last and message.tail.startswith(prefix)
                    for message in entry.messages
                ):
                    return True
            position = entries[-1].id
        return False

    async def find_oldest_ms(self) -> int | None:
        """Return the commit time (Unix ms) of the oldest unpersisted entry, or None."""
        entries = await self.list_after(await self.get_checkpoint(), 1)
        return int(entries[0].id.partition("-")[0]) if entries else None

    async def get_newest(self) -> str:
        """Return the id of the newest entry; ``0-0`` if the backlog is empty."""
        reply = await self._hot.call("XREVRANGE", self._key, "+", "-", "COUNT", 1)
        return reply[0][0].decode() if reply else "0-0"

    async def is_persisted(self, entry_id: str) -> bool:
        """Return whether the entry and all earlier entries are persisted."""
        return parse_entry_id(await self.get_checkpoint()) >= parse_entry_id(entry_id)

    async def count_waiting(self) -> int:
        """Return the number of entries in the backlog; 0 if all of them are persisted.

        It includes persisted entries that other readers still need (see ``move_checkpoint.lua``).
        """
        script = load_script("read_persisted")
        _, done, newest = await self._hot.run(
            script, self._hot.keys.of(self._partition, *script.keys)
        )
        if parse_entry_id(done.decode()) >= parse_entry_id(newest.decode()):
            return 0
        return int(await self._hot.call("XLEN", self._key))

    async def checkpoint(self, lease: Lease, entry_id: str, epoch: Epoch) -> bool:
        """Move the checkpoint to `entry_id` and trim the backlog.

        Return False if the lease is lost, or the epoch in which the entries were read has ended:
        they must be read again.
        """
        moved: int = await self._hot.run(
            load_script("move_checkpoint"),
            self._get_keys("epoch", "checkpoint", "backlog", "progress"),
            {
                "token": lease.token,
                "epoch": epoch,
                "id": entry_id,
                "next": next_entry_id(entry_id),
            },
        )
        return bool(moved)

    async def add_dead_letter(self, message: CommittedMessage, reason: str) -> None:
        """Add a message that cannot be persisted to the dead letters, with the reason."""
        await self._hot.write(
            "XADD", self._hot.keys.dead(self._partition), "MAXLEN", "~", DEAD_MAX, "*",
            "s", message.seq, "t", message.ts, "r", message.receiver or "", "m", message.tail,
            "why", reason[:500],
        )  # fmt: skip

    async def list_dead(self, after: str, limit: int) -> list[DeadLetter]:
        """Return dead letters after stream entry `after`, oldest first; ``0-0`` returns all."""
        key = self._hot.keys.dead(self._partition)
        reply = await self._hot.call("XRANGE", key, f"({after}", "+", "COUNT", limit)
        return [_parse_dead(self._partition, name.decode(), fields) for name, fields in reply]

    async def remove_dead(self, letter: DeadLetter, stored_in: ChatId | None) -> None:
        """Remove a dead letter. `stored_in`: the chat in which its message is now stored."""
        if stored_in is None:
            await self._hot.call("XDEL", self._hot.keys.dead(self._partition), letter.entry)
            return
        await self._hot.run(
            load_script("remove_dead_letter"),
            {"dead": self._hot.keys.dead(self._partition), "chat": self._hot.keys.chat(stored_in)},
            {"entry": letter.entry, "seq": letter.message.seq},
        )

    async def record_persisted(
        self, tops: Mapping[ChatId, Seq], dead: Mapping[ChatId, Collection[Seq]], epoch: Epoch
    ) -> None:
        """Record the persisted seqs, and trim persisted entries from logs longer than `log_max`.

        `dead`: the seqs of dead letters among these entries. `epoch`: the epoch in which the
        entries were read; chats that were loaded in a later one are not changed.

        While Redis is short of memory, a log keeps only `PRESSURE_LOG_MAX` persisted entries.
        """
        keys, script = self._hot.keys, load_script("trim_persisted")
        log_max = self._hot.settings.log_max
        if self._hot.health.is_under_memory_pressure:
            log_max = min(log_max, PRESSURE_LOG_MAX)
        chats: Sequence[tuple[ChatId, Seq]] = list(tops.items())
        for start in range(0, len(chats), 200):
            await self._hot.run(
                script,
                args={"log_max": log_max, "ref_ttl_s": REF_TTL_S, "epoch": epoch},
                items=[
                    keys.of(chat, *script.item_keys)
                    | {"upto": upto, "dead": ",".join(map(str, sorted(dead.get(chat, ()))))}
                    for chat, upto in chats[start : start + 200]
                ],
            )
