"""User inboxes: ordered event logs, read by all devices of a user.

Data: ``{pN}:inbox:<user>`` (stream) has references to messages, and complete events of other kinds.
Entry ``0-<seq>`` has one message, whose chat seq is its value, or several messages that are
consecutive in the chat and in the inbox; its value is then ``<first>-<last>``, and `seq` that of
the last one. Redis numbers the entries: the stream has the inbox's newest seq, even when empty.
``{pN}:box:<user>`` (hash) has the user state: chats and read marks. All of these keys are in the
user's partition. An inbox has about `inbox_max` events; a device that missed more starts from a
snapshot.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, Ts, UserId
from chatserver.domain.inboxes import (
    AppendResult,
    Delivery,
    InboxEntry,
    ListedChat,
    UserChat,
    UserMarks,
)
from chatserver.errors import NotFound
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, load_script

_OTHER_EPOCH = 3


USERS_PER_CALL = 500  # maximum users per script call that appends to inboxes
_Item = Mapping[str, Value]  # inputs of a script for one user


class _Head(NamedTuple):
    """The newest position of a chat, as a user sees it."""

    top: int
    ts: int
    own: int  # the user's newest message, which counts as read: field `s:<user>` of the chat
    stored: int
    is_open: bool


def parse_gateways(text: bytes) -> tuple[GatewayId, ...]:
    """Parse a comma-separated list of gateways."""
    return tuple(GatewayId(name) for name in text.decode().split(",")) if text else ()


def parse_entry(entry_id: bytes, fields: list[bytes]) -> list[InboxEntry]:
    """Return the messages or the event in one inbox stream entry, oldest first."""
    seq = int(entry_id.partition(b"-")[2])
    field, value = fields
    if field == b"!":
        return [InboxEntry(Seq(seq), None, Seq(0), value)]
    chat, (first, _, last) = ChatId(field.decode()), value.partition(b"-")
    newest = int(last or first)
    return [
        InboxEntry(Seq(seq - newest + cs), chat, Seq(cs), None)
        for cs in range(int(first), newest + 1)
    ]


class Inboxes:
    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = hot.keys

    async def list_after(self, user: UserId, after: Seq, limit: int) -> list[InboxEntry]:
        """Return the entries whose inbox seq is above `after`, oldest first.

        Raises:
            Unavailable: Redis has begun a new epoch; the user's sessions must get `reset`.
        """
        partition = self._keys.get_partition(user)
        epoch = self._hot.get_epoch(partition)
        current, reply = await self._hot.snapshot(
            ("HGET", self._keys.epoch(partition), "epoch"),
            ("XRANGE", self._keys.inbox(user), f"0-{after + 1}", "+", "COUNT", limit),
        )
        if current != epoch.encode():
            self._hot.raise_epoch_lost(partition, epoch)
        entries = (event for entry in reply for event in parse_entry(*entry) if event.seq > after)
        return list(itertools.islice(entries, limit))

    async def deliver(self, deliveries: Sequence[Delivery]) -> list[AppendResult]:
        """Append each delivery's entries to its inbox, except those that the inbox already has.

        Guarantees:
            Idempotent: entries are appended once, whatever the order of calls.
            Cost: one script call per partition and `USERS_PER_CALL` deliveries.
        """
        return await self._run_append(
            "append_to_inboxes",
            {},
            [
                (
                    d.user,
                    {"chat_id": d.chat, "after": d.after, "upto": d.upto, "epoch": d.epoch},
                )
                for d in deliveries
            ],
        )

    async def _run_append(
        self, name: str, args: Mapping[str, Value], items: Sequence[tuple[UserId, _Item]]
    ) -> list[AppendResult]:
        """Run a script that appends to the inboxes of `items`, with some inputs for each user."""
        script, appended = load_script(name), list[AppendResult]()
        args = {"inbox_max": self._hot.settings.inbox_max, **args}
        for partition, group in self._keys.group_by_partition(items, lambda item: item[0]).items():
            for start in range(0, len(group), USERS_PER_CALL):
                chunk = group[start : start + USERS_PER_CALL]
                reply = await self._hot.run(
                    script,
                    self._keys.of(partition, *script.keys),
                    args,
                    [
                        {**self._keys.of(user, *script.item_keys), "user": user, **item}
                        for user, item in chunk
                    ],
                )
                appended += [
                    AppendResult(
                        user, reply[3 * i], Seq(reply[3 * i + 1]), parse_gateways(reply[3 * i + 2])
                    )
                    for i, (user, _) in enumerate(chunk)
                ]
        return appended

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, *, is_listed: bool = False
    ) -> list[AppendResult]:
        """Append an event that is not a message to each inbox.

        `is_listed`: the event adds the chat to the user's chat list; users who already have it in
        the list are skipped.
        """
        args: _Item = {"chat_id": chat, "body": body, "is_listed": "1" if is_listed else ""}
        return await self._run_append(
            "append_event", {**args, "mark": "", "level": 0}, [(user, {}) for user in users]
        )

    async def append_marks(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, reader: UserId, level: int
    ) -> list[AppendResult]:
        """Append an event, except to inboxes that have one with the same or a higher `level`.

        Only events with the same `chat` and `reader` are compared. If the event has the marks of
        `reader`, `level` is the sum of the marks. If the event describes the chat, `reader` is a
        constant and `level` is the chat version.

        Guarantees:
            Order: an inbox never gets such an event after a newer one.
        """
        args: _Item = {"chat_id": chat, "body": body, "is_listed": ""}
        return await self._run_append(
            "append_event",
            {**args, "mark": f"m:{chat}:{reader}", "level": level},
            [(user, {}) for user in users],
        )

    async def append_transition(
        self,
        chat: ChatId,
        version: int,
        entries: Sequence[tuple[UserId, Seq, str, bytes]],
        *,
        is_large: bool,
        epoch: Epoch,
    ) -> list[AppendResult]:
        """Notify users that a chat became large, or is no longer large, at chat version `version`.

        `epoch` is the chat's epoch at that change. Each item of `entries` is an entry for one
        inbox:

        - the user
        - the chat seq above which the change applies
        - the field and value of the inbox entry: "!" and an event, or the chat and a chat seq

        Guarantees:
            Atomic: a user's large chats and inbox change together.
            Idempotent: a change that is not newer than the last one has no effect.
        """
        args: _Item = {
            "chat_id": chat,
            "version": version,
            "is_large": "1" if is_large else "",
            "epoch": epoch,
        }
        return await self._run_append(
            "notify_large_chat_transition",
            args,
            [
                (user, {"since": since, "field": field, "value": value})
                for user, since, field, value in entries
            ],
        )

    async def mark(self, user: UserId, chat: ChatId, read: Seq, received: Seq) -> UserMarks:
        """Move the user's read and received marks forward; the persist worker stores them.

        Returns the marks of the last call that moved one.

        Guarantees:
            Idempotent: a mark never moves back, or beyond the newest committed seq.

        Raises:
            NotFound: the user is not a member of the chat.
        """
        script = load_script("move_read_marks")
        head = await self._read_head(user, chat)
        reply = await self._hot.run(
            script,
            self._keys.of(user, *script.keys),
            {
                "chat_id": chat,
                "user": user,
                "read": min(read, head.top),
                "received": min(received, head.top),
                "own": head.own,
            },
        )
        if reply is None:
            raise NotFound("chat: no such chat, or you are not a member")
        return UserMarks(Seq(reply[0]), Seq(reply[1]), head.is_open)

    async def lower_marks(
        self, user: UserId, chat: ChatId, top: Seq, read: int, received: int
    ) -> None:
        """Lower marks to `top`, the newest seq of the chat, if they are still `read`, `received`.

        A mark is above `top` only if Redis lost the entries that the user had read. Left there, it
        would count the entries that get these seqs as read.

        Guarantees:
            Idempotent. A mark that has moved meanwhile is not changed.
        """
        script = load_script("lower_read_marks")
        await self._hot.run(
            script,
            self._keys.of(user, *script.keys),
            {"chat_id": chat, "top": top, "read": read, "received": received},
        )

    async def list_chats(self, user: UserId) -> list[UserChat]:
        """Return the user's chats that are in Redis, newest activity first.

        Guarantees:
            Cost: two Redis round trips: the user's chats, then the newest seqs of these chats.
        """
        return await self._list_fields(user, await self._read_box(user))

    async def find_all_chats(self, user: UserId) -> list[UserChat] | None:
        """Return all of the user's chats, newest first; None if they are not in Redis.

        Guarantees:
            Cost: see `list_chats`.
        """
        fields = await self._read_box(user)
        if fields.get("known") != self._hot.get_epoch(self._keys.get_partition(user)).encode():
            return None
        return await self._list_fields(user, fields)

    async def _read_box(self, user: UserId) -> dict[str, bytes]:
        reply = await self._hot.call("HGETALL", self._keys.box(user))
        return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}

    async def _list_fields(self, user: UserId, fields: Mapping[str, bytes]) -> list[UserChat]:
        names = [ChatId(name[2:]) for name in fields if name.startswith("c:")]
        heads = await asyncio.gather(*(self._read_head(user, name) for name in names))
        chats = list[UserChat]()
        for chat, head in zip(names, heads, strict=True):
            read, received = int(fields.get(f"r:{chat}", 0)), int(fields.get(f"d:{chat}", 0))
            if head.is_open and max(read, received) > head.top:
                # The marks were read before the head, so the user has read entries that are lost.
                await self.lower_marks(user, chat, Seq(head.top), read, received)
                read, received = min(read, head.top), min(received, head.top)
            chats.append(
                UserChat(
                    chat=chat,
                    top=Seq(head.top),
                    read=Seq(max(head.own, read)),
                    received=Seq(max(head.own, received)),
                    order=Ts(max(head.ts, int(fields[f"c:{chat}"]))),
                    stored=head.stored,
                )
            )
        chats.sort(key=lambda chat: (-chat.order, chat.chat))
        return chats

    async def _read_head(self, user: UserId, chat: ChatId) -> _Head:
        seq, ts, own, stored, gate = await self._hot.call(
            "HMGET", self._keys.chat(chat), "seq", "ts", f"s:{user}", "stored", "gate"
        )
        return _Head(
            int(seq or 0),
            int(ts or 0),
            int(own or 0),
            int(stored or 0),
            self._hot.is_loaded(chat, gate),
        )

    async def get_marks(self, user: UserId, chat: ChatId) -> UserMarks:
        """Return the user's marks in the chat."""
        head, (read, received) = await asyncio.gather(
            self._read_head(user, chat),
            self._hot.call("HMGET", self._keys.box(user), f"r:{chat}", f"d:{chat}"),
        )
        return UserMarks(
            Seq(max(head.own, int(read or 0))), Seq(max(head.own, int(received or 0))), head.is_open
        )

    async def list_gateways(self, users: Sequence[UserId]) -> list[tuple[GatewayId, ...]]:
        """Return the gateways on which each user is online, in the order of `users`."""
        gateways: dict[UserId, tuple[GatewayId, ...]] = {}
        for partition, group in self._keys.group_by_partition(users, lambda user: user).items():
            reply = await self._hot.call("HMGET", self._keys.where(partition), *group)
            gateways |= {
                user: parse_gateways(value or b"") for user, value in zip(group, reply, strict=True)
            }
        return [gateways[user] for user in users]

    async def is_listed(self, user: UserId, chat: ChatId) -> bool:
        return bool(await self._hot.call("HEXISTS", self._keys.box(user), f"c:{chat}"))

    async def is_known(self, user: UserId) -> bool:
        """Return whether the user state was loaded from the `directory` table in this epoch."""
        stored = await self._hot.call("HGET", self._keys.box(user), "known")
        epoch = self._hot.get_epoch(self._keys.get_partition(user))
        return bool(stored == epoch.encode())

    async def open_user_state(
        self, user: UserId, chats: Sequence[ListedChat], epoch: Epoch
    ) -> None:
        """Write the user's chats from the `directory` table to Redis, once per epoch.

        Raises:
            Unavailable: the epoch in Redis is not `epoch`.
        """
        items: list[dict[str, Value]] = [
            {
                "chat_id": listed.chat,
                "read": listed.read,
                "received": listed.received,
                "since": "" if listed.since is None else listed.since,
                "version": listed.version,
                "chat_epoch": self._hot.get_epoch(self._keys.get_partition(listed.chat)),
            }
            for listed in chats
        ]
        script = load_script("load_user")
        keys = self._keys.of(user, *script.keys)
        reply = await self._hot.run(script, keys, {"epoch": epoch}, items)
        if reply == _OTHER_EPOCH:
            self._hot.raise_epoch_lost(self._keys.get_partition(user), epoch)
