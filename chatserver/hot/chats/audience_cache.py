"""Audience cache of a gateway. An audience has a chat's recipients and their encoded Redis keys."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from chatserver.domain.access.caller import CALLER, is_network_key
from chatserver.domain.companion_ids import is_companion
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.messages import Audience
from chatserver.domain.write_restrictions import (
    is_chat_blocked,
    is_session_ended,
    parse_member_status,
    parse_retention_s,
    parse_slow_s,
)
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.chats.membership_notices import MembershipNotice, parse_notices
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.keys import Keys
from chatserver.hot.redis.resp_encoding import pack
from chatserver.protocol.redis_memory_costs import Charge, charge_nobody, compute_load_cost
from chatserver.task_groups import wait_for_shared

CACHE_MAX = 20_000
NOT_A_MEMBER = "chat: no such chat, or you are not a member"
_LOADS_MAX = 3
_HEAD = (b"gate", b"base", b"kind", b"name", b"seq", b"done", b"large", b"turns", b"picture")


def _is_large(head: dict[bytes, bytes]) -> bool:
    return head.get(b"large", b"0") != b"0"


def make_audience(
    keys: Keys, chat: ChatId, epoch: Epoch, head: dict[bytes, bytes], members: dict[bytes, bytes]
) -> Audience:
    """Build an audience from the chat hash and the members hash."""
    base = int(head.get(b"base", 0))
    users: dict[UserId, Seq] = {}
    joined: dict[UserId, Seq] = {}
    # While a fan-out is pending, `gate` ends with ":p". The audience has `gate` without it.
    is_pending = head[b"gate"].endswith(b":p")
    gate = head[b"gate"].decode().removesuffix(":p")
    slow_s = parse_slow_s(gate)
    # Members whose write permission the commit has to check.
    checked_by_commit: set[UserId] = set()
    for name, value in members.items():
        status = parse_member_status(value)
        user = UserId(name.decode())
        joined[user] = Seq(status.joined)
        if status.muted_until is not None or (slow_s and status.role == "member"):
            checked_by_commit.add(user)
        # A companion has no devices, so it needs no inbox. An inbox would collect the entries of
        # all its sessions.
        if not is_companion(user):
            users[user] = Seq(max(base, joined[user] - 1))
    names = tuple(users)
    home = keys.get_partition(chat)
    is_large = _is_large(head)
    kind = head.get(b"kind", b"group").decode()
    # The first message in a direct chat also adds the chat to the other user's chat list, which the
    # commit script cannot do.
    is_unlisted = kind == "direct" and int(head.get(b"seq", 0)) == 0
    is_near = all(keys.get_partition(user) == home for user in names)
    inline_users = names if is_near and not is_large and not is_unlisted else ()
    receiver_of: dict[UserId, UserId] = {}
    if kind == "direct" and len(names) == 2:
        receiver_of = {names[0]: names[1], names[1]: names[0]}
    if is_chat_blocked(gate) or is_session_ended(gate):
        checked_by_commit.update(joined)
    chat_keys = [
        keys.chat(chat),
        keys.members(chat),
        keys.log(chat),
    ]
    if is_large:
        chat_keys.append(keys.watchers(chat))
    chat_keys += [keys.inbox(user) for user in inline_users]
    recipients = -1 if is_large else len(inline_users)
    return Audience(
        chat=chat,
        epoch=epoch,
        kind=kind,
        name=head.get(b"name", b"").decode(),
        picture=head.get(b"picture", b"").decode(),
        users=users,
        joined=joined,
        top=Seq(int(head.get(b"seq", 0))),
        done=Seq(int(head.get(b"done" if is_pending else b"seq", 0))),
        receiver_of=receiver_of,
        is_large=is_large,
        transitions=tuple(int(seq) for seq in head.get(b"turns", b"").split(b",") if seq),
        inline_users=inline_users,
        gate=gate,
        retention_s=parse_retention_s(gate),
        keys_packed=pack(*(key.encode() for key in chat_keys)),
        keys_count=len(chat_keys),
        args_packed=pack(chat.encode(), gate.encode(), b"%d" % recipients),
        sender_packed={
            user: pack(user.encode(), b"1") for user in joined if user not in checked_by_commit
        },
        prefix_of={user: f"{other}\n".encode() for user, other in receiver_of.items()},
    )


class Audiences:
    """Audiences cached by a gateway. Above `CACHE_MAX`, the oldest is evicted.

    The cached audience of a large chat has no members, because the commit checks each sender in
    Redis. `load_chat` loads a chat from the warm tier into the hot tier; it raises NotFound or
    Unavailable. `charge` charges the memory for the load to the user whose request is being
    processed (the context variable `CALLER`).
    """

    def __init__(
        self,
        hot: HotClient,
        load_chat: Callable[[ChatId], Awaitable[None]],
        charge: Charge = charge_nobody,
    ) -> None:
        self._charge = charge
        self._hot = hot
        self._load_chat = load_chat
        self._cache: collections.OrderedDict[ChatId, Audience] = collections.OrderedDict()
        self._loading: dict[tuple[ChatId, bool], asyncio.Task[Audience]] = {}
        hot.on_epoch.append(self._cache.clear)

    def find(self, chat: ChatId) -> Audience | None:
        return self._cache.get(chat)

    def drop(self, chat: ChatId) -> None:
        self._cache.pop(chat, None)

    async def get(self, chat: ChatId) -> Audience:
        """Read the current audience from Redis; load the chat if necessary.

        Guarantees:
            Concurrency: concurrent calls for the same chat share one read; those of new accounts
                share another one.
            Cost: one Redis round trip, plus a warm-tier call if the chat is not loaded.

        Raises:
            NotFound: the chat does not exist.
            Unavailable: Redis or the warm tier does not respond.
        """
        # The load waits in the queue of the first caller. Others must not wait for new accounts.
        key = (chat, is_network_key(CALLER.get().queue_key))
        task = self._loading.get(key)
        if task is None:
            task = asyncio.create_task(self._load(chat), name=f"audience-{chat}")
            self._loading[key] = task
            task.add_done_callback(lambda _: self._loading.pop(key, None))
        return await wait_for_shared(task)

    async def get_fresh(self, chat: ChatId) -> Audience:
        """Read the audience from Redis, even if another call is already reading it.

        Raises:
            NotFound, Unavailable: see `get`.
        """
        return await self._load(chat)

    async def get_with_notices(self, chat: ChatId) -> tuple[Audience, list[MembershipNotice]]:
        """Return an audience, and the chat's pending membership and large-chat notices.

        The audience of a large chat has members only while a notice that the chat became large or
        small is pending.

        Guarantees:
            Atomic: the audience includes the changes in the notices, and all membership changes
                up to `Audience.top`, the newest chat seq.

        Raises:
            NotFound, Unavailable: see `get`.
        """
        notices: list[MembershipNotice] = []
        audience = await self._load(chat, notices=notices)
        if audience.is_in_transition or any(notice.user is None for notice in notices):
            audience = await self._load(chat, is_whole=True, notices=notices)
        return audience, notices

    async def find_members(self, chat: ChatId, users: Sequence[UserId]) -> dict[UserId, Seq]:
        """Return the chat seq at which each member among `users` joined.

        Guarantees:
            Cost: one Redis call. If the chat was evicted from Redis, it is loaded first.

        Raises:
            NotFound: the chat does not exist.
        """
        if not users:
            return {}
        hot, keys = self._hot, self._hot.keys
        for _ in range(_LOADS_MAX):
            gate, values = await hot.snapshot(
                ("HGET", keys.chat(chat), "gate"), ("HMGET", keys.members(chat), *users)
            )
            if hot.is_loaded(chat, gate):
                return {
                    user: Seq(parse_member_status(value).joined)
                    for user, value in zip(users, values, strict=True)
                    if value is not None
                }
            await self._load(chat)
        raise Unavailable(f"chat {chat}: could not be loaded; try again")

    async def _load(
        self, chat: ChatId, *, is_whole: bool = False, notices: list[MembershipNotice] | None = None
    ) -> Audience:
        """Read the audience. `notices` receives the pending notices from the same atomic read."""
        hot, keys = self._hot, self._hot.keys
        is_loaded = False
        for _ in range(_LOADS_MAX):
            epoch = hot.get_epoch(keys.get_partition(chat))
            cached = self._cache.get(chat)
            # In a large chat, the commit checks the sender in Redis, so members are not cached.
            is_light = not is_whole and cached is not None and cached.is_large
            # Read atomically, so that the members match the chat version.
            reply = await hot.snapshot(
                ("HMGET", keys.chat(chat), *_HEAD),
                ("HLEN" if is_light else "HGETALL", keys.members(chat)),
                *([] if notices is None else [("HGETALL", keys.turnover(chat))]),
            )
            if notices is not None:
                notices[:] = parse_notices(reply[2])
            head = {n: v for n, v in zip(_HEAD, reply[0], strict=True) if v is not None}
            if hot.is_loaded(chat, head.get(b"gate")):
                if is_light and not _is_large(head):
                    self.drop(chat)
                    continue
                audience = [] if is_light else reply[1]
                members = dict(zip(audience[::2], audience[1::2], strict=True))
                if is_loaded and (user := CALLER.get().user):
                    self._charge(user, compute_load_cost(len(members)))
                return self._make(chat, epoch, head, members, is_whole=is_whole)
            try:
                await self._load_chat(chat)
                is_loaded = True
            except NotFound:
                raise NotFound(NOT_A_MEMBER) from None
        raise Unavailable(f"chat {chat}: could not be loaded; try again")

    def _make(
        self,
        chat: ChatId,
        epoch: Epoch,
        head: dict[bytes, bytes],
        members: dict[bytes, bytes],
        *,
        is_whole: bool,
    ) -> Audience:
        keys = self._hot.keys
        own_members = {} if _is_large(head) else members
        audience = make_audience(keys, chat, epoch, head, own_members)
        self._add_to_cache(audience)
        return make_audience(keys, chat, epoch, head, members) if is_whole else audience

    def _add_to_cache(self, audience: Audience) -> None:
        self._cache[audience.chat] = audience
        self._cache.move_to_end(audience.chat)
        if len(self._cache) > CACHE_MAX:
            self._cache.popitem(last=False)

    async def get_for_member(self, chat: ChatId, user: UserId) -> Audience:
        """Return the audience for a member; for a large chat, it contains only this member.

        Raises:
            NotFound: the chat does not exist, or the user is not a member.
        """
        audience = await self.get(chat)
        if audience.is_large:
            joined = await self.find_members(chat, [user])
            after = {user: Seq(first - 1) for user, first in joined.items()}
            audience = dataclasses.replace(audience, users=after, joined=joined)
        if user not in audience.joined:
            raise NotFound(NOT_A_MEMBER)
        return audience
