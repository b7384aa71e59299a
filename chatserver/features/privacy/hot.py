"""Deletes an erased user's data from Redis, except data that expires automatically.

A stream retains records until it is trimmed, even if they have been read. A record that contains
the user's data is deleted as a whole. A record in a gateway stream can also contain events for
other users, so it is deleted only after the gateway has had time to read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final

import msgspec

from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.features.companions.keys import CompanionKeys
from chatserver.features.push.keys import NotificationKeys
from chatserver.features.webhooks.keys import WebhookKeys
from chatserver.hot.bus.rpc import find_author
from chatserver.hot.redis.client import HotClient
from chatserver.protocol import webhook_messages as messages

PAGE_MAX: Final = 500


class RedisUserData:
    """Deletes a user's data. All methods are idempotent. Most return the number of deleted records.

    `chats` are the chats of the user's companion sessions. All messages in them are deleted, too.
    """

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def remove_gateway_pushes(
        self, user: UserId, read_s: float, chats: Collection[ChatId] = ()
    ) -> int:
        """Delete gateway stream records that contain the user's messages.

        Only records that are older than `read_s` seconds are deleted: the gateway has read them.
        """
        keys, gateways = self._hot.keys, set[bytes]()
        for partition in range(keys.partitions):
            names = await self._hot.call("ZRANGE", keys.gateways(partition), 0, -1)
            gateways.update(names)
        # In gateway streams, events contain chat entries as JSON; RPC results are JSON or
        # msgpack.
        packed = msgspec.msgpack.encode({"sender": user})[1:]
        patterns, count = [_encode_sender(user), packed], 0
        for chat in chats:
            patterns += [_encode_chat(chat), msgspec.msgpack.encode({"chat": chat})[1:]]

        def matches(fields: list[bytes]) -> bool:
            return any(pattern in fields[1] for pattern in patterns)

        for gateway in gateways:
            key = keys.gateway_stream(GatewayId(gateway.decode()))
            (now_s, _), _ = await self._hot.snapshot(("TIME",), ("XLEN", key))
            before = str(int((int(now_s) - read_s) * 1000))
            count += await self._delete_matching(key, matches, before)
        return count

    async def remove_calls(self, user: UserId) -> int:
        """Delete the RPC calls that gateways have queued on behalf of the user."""
        count, keys = 0, self._hot.keys
        for key in (keys.rpc_calls(), keys.hook_calls(), keys.search_calls()):
            count += await self._delete_matching(key, lambda fields: find_author(fields[1]) == user)
        return count

    async def remove_dead_letters(self, user: UserId, chats: Collection[ChatId] = ()) -> int:
        """Delete the persist worker's dead letters that contain messages from the user."""
        patterns, count = [_encode_sender(user), *map(_encode_chat, chats)], 0

        def matches(fields: list[bytes]) -> bool:
            return any(pattern in _get_field(fields, b"m") for pattern in patterns)

        for partition in range(self._hot.keys.partitions):
            key = self._hot.keys.dead(partition)
            count += await self._delete_matching(key, matches)
        return count

    async def remove_events(self, user: UserId, chats: Collection[ChatId] = ()) -> int:
        """Delete all queued webhook events that contain the user's text."""

        def matches(event: bytes) -> bool:
            return contains_user_text(event, user, chats)

        count, keys = 0, WebhookKeys(self._hot.keys.partitions)
        for partition in range(keys.partitions):
            for key in (keys.hooks(partition), keys.hooks_dead(partition)):
                count += await self._delete_matching(
                    key, lambda fields: matches(_get_field(fields, b"e"))
                )
            count += await self._delete_matching_late(keys.hooks_late(partition), matches)
        return count

    async def delete_user_state(self, user: UserId) -> None:
        """Delete the user state. Later requests by this user fail with NotFound."""
        await self._hot.call("DEL", self._hot.keys.box(user))

    async def remove_response_parts(self, chat: ChatId) -> None:
        """Delete the deltas of the last AI response in a session, which may quote the user."""
        keys = CompanionKeys(self._hot.keys.partitions)
        await self._hot.call("DEL", keys.deltas(chat))

    async def remove_keys(self, user: UserId) -> int:
        """Delete the user's keys, except the ban; return how many were deleted."""
        keys = NotificationKeys(self._hot.keys.partitions)
        others: list[bytes] = await self._hot.call("SMEMBERS", keys.blocks(user))
        for other in others:
            await self._hot.call("SREM", keys.blocks(UserId(other.decode())), user)
        of_user = (
            keys.inbox, keys.box, keys.hidden, keys.blocks, keys.seen, keys.watched, keys.online,
            keys.pushing, keys.pushed, keys.large,
        )  # fmt: skip
        count = 0
        for make in of_user:
            count += int(await self._hot.call("DEL", make(user)))
        for kind in ("sends", "requests", "logins"):
            count += int(await self._hot.call("DEL", keys.limit(kind, user)))
        partition = keys.get_partition(user)
        await self._hot.call("HDEL", keys.where(partition), user)
        return count

    # Scans

    async def _delete_matching(
        self, key: str, matches: Callable[[list[bytes]], bool], before: str = "+"
    ) -> int:
        count = 0
        async for entries in self._iter_pages(key, before):
            matching = [name for name, fields in entries if matches(fields)]
            if matching:
                count += int(await self._hot.call("XDEL", key, *matching))
        return count

    async def _iter_pages(self, key: str, before: str) -> AsyncIterator[list[Any]]:
        start = "-"
        while True:
            page: list[Any] = await self._hot.call("XRANGE", key, start, before, "COUNT", PAGE_MAX)
            if page:
                yield page
            if len(page) < PAGE_MAX:
                return
            start = f"({page[-1][0].decode()}"

    async def _delete_matching_late(self, key: str, matches: Callable[[bytes], bool]) -> int:
        count, cursor = 0, b"0"
        while True:
            cursor, members = await self._hot.call("ZSCAN", key, cursor, "COUNT", PAGE_MAX)
            for packed in members[::2]:
                _, event = msgspec.msgpack.decode(packed, type=tuple[int, bytes])
                if matches(event):
                    count += int(await self._hot.call("ZREM", key, packed))
            if cursor in (b"0", 0):
                return count


def contains_user_text(event: bytes, user: UserId, chats: Collection[ChatId] = ()) -> bool:
    """Return whether a webhook event contains the user's text or a message in `chats`."""
    try:
        decoded = messages.decode_event(event)
    except msgspec.MsgspecError:
        return False
    message, data = decoded.message, decoded.data or {}
    if message is not None:
        is_affected = message.sender == user or message.chat in chats
        return is_affected and bool(message.body or message.attachments)
    return data.get("reporter") == user and bool(data.get("reason"))


def _encode_sender(user: UserId) -> bytes:
    # The JSON encoder writes exactly these bytes. Message text cannot contain them, because quotes
    # in text are escaped.
    return b'"sender":"%b"' % user.encode()


def _encode_chat(chat: ChatId) -> bytes:
    return b'"chat":"%b"' % chat.encode()


def _get_field(fields: list[bytes], name: bytes) -> bytes:
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return pairs.get(name, b"")
