"""Redis data for pushes: the schedule of chats, cached device lookups and push claims.

Keys, in the partition of the chat or user:

- ``{pN}:due`` (zset): the time at which each chat's pushes are due
- ``{pN}:since`` (hash): for each chat, the seq of the first message that needs a push
- ``told`` in ``{pN}:checkpoint``: the last backlog entry read for pushes. Later entries stay in the
  backlog for up to a minute, even if they are persisted.
- ``{pN}:pushing:<user>`` (string): caches whether a user has push devices
- ``{pN}:pushed:<user>`` (hash): claimed pushes, so that none is sent twice
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence

from chatserver.domain.companion_ids import is_companion
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.write_restrictions import parse_member_status
from chatserver.features.push.keys import NotificationKeys
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import load_script
from chatserver.hot.worker_leases import Lease

CLAIM_TTL_S = 86_400
NO_DEVICES_TTL_S = 3_600
DEVICES_TTL_S = 30 * 86_400
USERS_AT_ONCE = 100  # a call with this many users blocks Redis for about 0.3 ms


class PushNeed(enum.IntEnum):
    """Whether a user needs a push, according to Redis."""

    NO = 0
    YES = 1
    IF_DEVICES = 2  # Redis does not know whether the user has devices; read DynamoDB
    FOREGROUND = 3  # a client is in the foreground, or was until recently


@dataclasses.dataclass(frozen=True, slots=True)
class DuePush:
    """A chat that a worker has claimed. Messages from seq `since` onward may need pushes.

    `time` identifies the claim in `epoch`. `claimed_ms` is the time of the claim, by the Redis
    clock.
    """

    chat: ChatId
    since: Seq
    time: float
    claimed_ms: int
    epoch: Epoch


class DueChats:
    """Schedule of chats that need pushes, for one partition."""

    def __init__(self, hot: HotClient, lease: Lease) -> None:
        self._hot = hot
        self._keys = NotificationKeys(hot.keys.partitions)
        self._lease = lease
        self._partition = lease.partition
        self._backlog = hot.keys.backlog(self._partition)

    async def get_checkpoint(self) -> str:
        """Return the id of the last backlog entry read for pushes; initially ``0-0``."""
        key = self._keys.checkpoint(self._partition)
        notified = await self._hot.call("HGET", key, "told")
        return bytes(notified or b"0-0").decode()

    async def has_any(self) -> bool:
        """Return whether any chat is scheduled."""
        return bool(await self._hot.call("EXISTS", self._keys.due(self._partition)))

    async def schedule(self, upto: str, first_seqs: Mapping[ChatId, Seq], delay_s: float) -> bool:
        """Schedule the chats in `first_seqs` for `delay_s` from now.

        Also record that the backlog has been read for pushes up to `upto`. If the lease is lost,
        change nothing and return False.

        Guarantees:
            Atomic: `upto` is recorded only if the chats are scheduled.
            A chat that is already scheduled keeps its time and first seq.
        """
        keys = self._keys
        recorded: int = await self._hot.run(
            load_script("record_due_pushes"),
            {
                "lease": keys.lease(self._partition, "notify"),
                "checkpoint": keys.checkpoint(self._partition),
                "backlog": self._backlog,
                "due": keys.due(self._partition),
                "since": keys.since(self._partition),
            },
            {"token": self._lease.token, "id": upto, "delay_ms": int(delay_s * 1000)},
            [{"chat": chat, "seq": seq} for chat, seq in first_seqs.items()],
        )
        return bool(recorded)

    async def claim_due(self, limit: int, hold_s: float) -> list[DuePush]:
        """Claim chats whose pushes are due.

        A claim expires after `hold_s`, unless `finish` is called.
        """
        keys, hold_ms = self._keys, int(hold_s * 1000)
        epoch = self._hot.get_epoch(self._partition)
        reply = await self._hot.run(
            load_script("claim_due_pushes"),
            {
                "lease": keys.lease(self._partition, "notify"),
                "due": keys.due(self._partition),
                "since": keys.since(self._partition),
            },
            {"token": self._lease.token, "hold_ms": hold_ms, "limit": limit},
        )
        return [
            DuePush(
                ChatId(chat.decode()),
                Seq(int(since)),
                float(time),
                round(float(time) + 0.5) - hold_ms,
                epoch,
            )
            for chat, since, time in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        ]

    async def finish(
        self, due: DuePush, next_seq: Seq, recheck_after_s: float | None = None
    ) -> None:
        """Mark the pushes for messages before `next_seq` as done.

        With `recheck_after_s`, schedule the chat again after this delay.

        Guarantees:
            If messages were committed after the chat was claimed, it stays scheduled.
            No effect if Redis has begun a new epoch since the claim: the seqs may be those of other
                messages.
        """
        keys = self._keys
        delay_ms = -1 if recheck_after_s is None else int(recheck_after_s * 1000)
        await self._hot.run(
            load_script("finish_due_push"),
            {
                "due": keys.due(self._partition),
                "since": keys.since(self._partition),
                "epoch": keys.epoch(self._partition),
            },
            {
                "chat": due.chat,
                "time": str(due.time),
                "next": next_seq,
                "delay_ms": delay_ms,
                "epoch": due.epoch,
            },
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ChatFields:
    """Chat fields from Redis; `top` is the highest seq."""

    top: Seq
    name: str
    is_direct: bool
    is_large: bool


class PushState:
    """Reads what pushes need to know about chats and users, and claims pushes."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = NotificationKeys(hot.keys.partitions)

    async def find_chat(self, chat: ChatId) -> ChatFields | None:
        """Return a chat's fields; None if it has not been loaded in this Redis epoch."""
        key, epoch = (
            self._keys.chat(chat),
            self._hot.get_epoch(self._keys.get_partition(chat)),
        )
        gate, seq, name, kind, large = await self._hot.call(
            "HMGET", key, "gate", "seq", "name", "kind", "large"
        )
        if gate is None or not gate.startswith(f"{epoch}:".encode()):
            return None
        return ChatFields(
            Seq(int(seq or 0)), (name or b"").decode(), kind != b"group", large not in (None, b"0")
        )

    async def find_members(
        self, chat: ChatId, users: Sequence[UserId] | None
    ) -> dict[UserId, Seq] | None:
        """Return the members and the first seq that each may read; only `users` if given.

        None: Redis does not have the chat.
        """
        key = self._keys.members(chat)
        # A call without fields is an error; "-" is no user.
        read = ("HGETALL", key) if users is None else ("HMGET", key, *users, "-")
        gate, reply = await self._hot.snapshot(("HGET", self._keys.chat(chat), "gate"), read)
        if not self._hot.is_loaded(chat, gate):
            return None
        if users is None:
            pairs = list(zip(reply[::2], reply[1::2], strict=True))
        else:
            pairs = [(user.encode(), value) for user, value in zip(users, reply, strict=False)]
        return {
            UserId(name.decode()): Seq(parse_member_status(value).joined)
            for name, value in pairs
            if value is not None
        }

    async def count_user_state_fields(self, user: UserId) -> int:
        """Count the fields in a user's state; the count grows with the user's chats."""
        return int(await self._hot.call("HLEN", self._keys.box(user)))

    async def is_user_state_loaded(self, user: UserId) -> bool:
        """Return whether the user's chats and read marks are loaded into Redis."""
        epoch = self._hot.get_epoch(self._keys.get_partition(user))
        stored = await self._hot.call("HGET", self._keys.box(user), "known")
        return bool(stored == epoch.encode())

    async def find_needs(
        self, chat: ChatId, users: Sequence[UserId]
    ) -> dict[UserId, tuple[PushNeed, Seq]]:
        """Return `{user: (need, read seq)}`, without the users who have no devices.

        Guarantees:
            Cost: one call per 100 users in a partition.
        """
        groups: dict[int, list[UserId]] = {}
        for user in users:
            if not is_companion(user):  # companions have no devices
                groups.setdefault(self._keys.get_partition(user), []).append(user)
        needs: dict[UserId, tuple[PushNeed, Seq]] = {}
        for partition, group in groups.items():
            for start in range(0, len(group), USERS_AT_ONCE):
                chunk = group[start : start + USERS_AT_ONCE]
                needs |= await self._find(partition, chat, chunk)
        return needs

    async def _find(
        self, partition: int, chat: ChatId, users: Sequence[UserId]
    ) -> dict[UserId, tuple[PushNeed, Seq]]:
        keys = self._keys
        reply = await self._hot.run(
            load_script("find_push_needs"),
            {"gateways": keys.gateways(partition)},
            {"chat_id": chat},
            [
                {"seen": keys.seen(user), "box": keys.box(user), "pushing": keys.pushing(user)}
                for user in users
            ],
        )
        return {
            user: (PushNeed(reply[2 * i]), Seq(int(reply[2 * i + 1])))
            for i, user in enumerate(users)
            if reply[2 * i] != PushNeed.NO
        }

    async def record_devices(self, user: UserId) -> None:
        """Record that the user may have devices. Call this before you store a device."""
        await self._hot.write("SET", self._keys.pushing(user), "1", "EX", DEVICES_TTL_S)

    async def record_no_devices(self, user: UserId) -> None:
        """Record that a lookup found no devices.

        Guarantees:
            Does not overwrite a concurrent `record_devices`.
        """
        await self._hot.write("SET", self._keys.pushing(user), "0", "NX", "EX", NO_DEVICES_TTL_S)

    async def claim(
        self,
        user: UserId,
        subscription: str,
        chat: ChatId,
        message: tuple[Seq, int],
        *,
        is_retry: bool = False,
    ) -> bool:
        """Claim the push for a message to one device; return False if it must not be sent.

        `message`: its seq and ts.
        `is_retry`: the caller claimed this push before, and the push was certainly not sent.

        Guarantees:
            Across all workers, only one call within `CLAIM_TTL_S` returns True, except for retries.
            False if the user has read the message.
        """
        keys = self._keys
        response: int = await self._hot.run(
            load_script("claim_push"),
            {"pushed": keys.pushed(user), "box": keys.box(user)},
            {
                "field": f"{subscription}:{chat}",
                "chat_id": chat,
                "seq": message[0],
                "ts": message[1],
                "ttl_s": CLAIM_TTL_S,
                "is_retry": "1" if is_retry else "",
            },
        )
        return bool(response)
