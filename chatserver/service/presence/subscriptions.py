"""Presence subscriptions: sends sessions the presence of the users they subscribed to.

Users see each other's presence only if they share a chat (promise P7): a direct chat that was
answered, or a group. Group membership of both is checked in Redis when a subscription starts and
before each notification. `look_again` finds changes that were lost between gateways, and renews
this gateway's subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import structlog
from msgspec import UNSET, UnsetType

from chatserver.domain.clock import Clock
from chatserver.domain.ids import DIRECT_PREFIX, ChatId, UserId, direct_chat_id
from chatserver.domain.inboxes import BoxChat
from chatserver.domain.presence import PresenceRecord, State
from chatserver.errors import BadRequest, ChatError, NotFound
from chatserver.protocol import codec, frames

log = structlog.get_logger()

SUBSCRIBED_USERS_MAX = 500  # of one session
TELL_INTERVAL_S = 1.0
SHARED_CHATS_MAX = 100  # newest groups of a subscriber that are searched for a user
_DIRECT = ChatId("")  # a direct chat never gets other members


class Watcher(Protocol):
    """A session with presence subscriptions."""

    user: UserId

    @property
    def is_live(self) -> bool: ...

    def signal(self, frame: bytes) -> None: ...


class PresenceSource(Protocol):
    """Presence states and gateway subscriptions in Redis."""

    async def watch(self, users: Sequence[UserId]) -> dict[UserId, PresenceRecord]: ...

    async def unwatch(self, users: Sequence[UserId]) -> None: ...

    async def look(self, users: Sequence[UserId]) -> dict[UserId, PresenceRecord]: ...

    async def find_members(self, chat: ChatId, users: Sequence[UserId]) -> set[UserId] | None: ...


class Boxes(Protocol):
    """Users' chat lists."""

    async def list_chats(self, user: UserId) -> list[BoxChat]: ...


class BlockChecker(Protocol):
    """Users blocked in either direction."""

    async def list_apart(self, user: UserId) -> set[UserId]: ...


class AnsweredChats(Protocol):
    """Direct chats that were answered."""

    async def find_answered(self, user: UserId, others: Collection[UserId]) -> set[UserId]: ...


class _Watched:
    """A user with subscribers here: the subscribers with a shared chat, and the last sent state."""

    __slots__ = ("sight", "timer", "told", "told_at", "watchers")

    def __init__(self) -> None:
        self.watchers: dict[Watcher, ChatId] = {}
        self.sight: PresenceRecord | None = None
        self.told: State | None = None
        self.told_at = float("-inf")
        self.timer: asyncio.TimerHandle | None = None


class PresenceSubscriptions:
    """Presence subscriptions of one gateway. Bounds: `watched_max` users per session."""

    def __init__(
        self,
        sights: PresenceSource,
        boxes: Boxes,
        open_chat: Callable[[ChatId], Awaitable[object]],
        watched_max: int,
        clock: Clock,
        apart: BlockChecker | None = None,
        directs: AnsweredChats | None = None,
    ) -> None:
        self._apart = apart
        self._directs = directs
        self._sights = sights
        self._boxes = boxes
        self._open_chat = open_chat
        self._watched_max = watched_max
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: dict[UserId, _Watched] = {}
        self._of: dict[Watcher, set[UserId]] = {}

    # session commands

    async def watch(self, watcher: Watcher, users: Iterable[UserId]) -> None:
        """Send the subscriber the presence of users, now and at each change.

        Users who share no chat with the subscriber are omitted silently.

        Raises:
            BadRequest: the session would exceed its limit of subscriptions.
            Unavailable: Redis does not respond.
        """
        wanted = set(users) - {watcher.user}
        self._check_room(watcher, wanted)
        shared = await self._find_shared(watcher.user, wanted)
        if not shared or not watcher.is_live:
            return
        self._check_room(watcher, shared)
        for user, chat in shared.items():
            self._watched.setdefault(user, _Watched()).watchers[watcher] = chat
        self._of.setdefault(watcher, set()).update(shared)
        await self._look(list(shared))
        for user in shared:
            watched = self._watched.get(user)
            if watched is not None and watched.told is not None and watcher in watched.watchers:
                # The state last sent to other subscribers: a newer one follows for all of them.
                watcher.signal(encode_presence(user, watched.told, watched.sight))

    async def look(self, asker: UserId, users: Iterable[UserId]) -> dict[UserId, PresenceRecord]:
        """Return the current presence of those users who share a chat with the asker.

        Raises:
            Unavailable: Redis does not respond.
        """
        shared = await self._find_shared(asker, set(users) - {asker})
        return await self._sights.look(list(shared)) if shared else {}

    async def find_near(self, asker: UserId, users: Iterable[UserId]) -> set[UserId]:
        """Return those users who share a chat with the asker, and the asker if listed.

        Raises:
            Unavailable: Redis does not respond.
        """
        asked = set(users)
        return set(await self._find_shared(asker, asked - {asker})) | (asked & {asker})

    def _check_room(self, watcher: Watcher, wanted: Iterable[UserId]) -> None:
        if len(self._of.get(watcher, set()).union(wanted)) > self._watched_max:
            raise BadRequest(f"users: a session may watch at most {self._watched_max}")

    def unwatch(self, watcher: Watcher, users: Iterable[UserId]) -> None:
        """End subscriptions to these users."""
        mine = self._of.get(watcher)
        if mine is None:
            return
        gone = mine.intersection(users)
        mine -= gone
        if not mine:
            del self._of[watcher]
        left = [user for user in gone if self._drop(watcher, user)]
        if left:
            self._spawn(self._unwatch(left), "unwatch")

    def gone(self, watcher: Watcher) -> None:
        """End all subscriptions of a closed session."""
        self.unwatch(watcher, list(self._of.get(watcher, ())))

    def _drop(self, watcher: Watcher, user: UserId) -> bool:
        """Remove one subscription; return True if it was the last one to the user."""
        watched = self._watched[user]
        del watched.watchers[watcher]
        if watched.watchers:
            return False
        if watched.timer is not None:
            watched.timer.cancel()
        del self._watched[user]
        return True

    async def _unwatch(self, users: Sequence[UserId]) -> None:
        try:
            await self._sights.unwatch([user for user in users if user not in self._watched])
        except ChatError as exc:
            log.info("watching.not_left", error=exc.message)  # it expires

    # visibility

    async def _find_shared(self, user: UserId, others: set[UserId]) -> dict[UserId, ChatId]:
        """Return one shared chat for each of the others who shares a chat with the user."""
        if others and self._apart is not None:
            others = others - await self._apart.list_apart(user)
        if not others:
            return {}
        chats = [box.chat for box in await self._boxes.list_chats(user)]
        mine = set(chats)
        directs = {other: direct_chat_id(user, other) for other in others}
        near = [other for other, chat in directs.items() if chat in mine]
        if near and self._directs is not None:
            # A direct chat with a stranger does not reveal their presence before they answer.
            near = list(await self._directs.find_answered(user, near))
        found = dict.fromkeys(near, _DIRECT)
        groups = [chat for chat in chats if not chat.startswith(DIRECT_PREFIX)][:SHARED_CHATS_MAX]
        missing = [other for other in others if other not in found]
        if missing and groups:
            asked = [user, *missing]
            for chat, members in zip(
                groups,
                await asyncio.gather(*(self._members_among(chat, asked) for chat in groups)),
                strict=True,
            ):
                if user in members:
                    found |= {other: chat for other in missing if other in members}
        return found

    async def _members_among(self, chat: ChatId, users: Sequence[UserId]) -> set[UserId]:
        members = await self._sights.find_members(chat, users)
        if members is None:
            try:
                await self._open_chat(chat)
            except NotFound:
                return set()
            members = await self._sights.find_members(chat, users)
        return members or set()

    # events

    def heard(self, user: UserId, sight: PresenceRecord) -> None:
        """Process a state of a user that has changed, or may have changed."""
        watched = self._watched.get(user)
        if watched is None or (watched.sight and watched.sight.version > sight.version):
            return
        watched.sight = sight
        if watched.told is None:
            # The first subscriber gets the state as the response.
            watched.told, watched.told_at = sight.state, self._clock.monotonic()
        elif watched.told is not sight.state and watched.timer is None:
            wait_s = watched.told_at + TELL_INTERVAL_S - self._clock.monotonic()
            loop = asyncio.get_running_loop()
            watched.timer = loop.call_later(max(0.0, wait_s), self._tell, user, watched)

    def _tell(self, user: UserId, watched: _Watched) -> None:
        watched.timer = None
        sight = watched.sight
        if sight is None or sight.state is watched.told:
            return  # changed back within a second
        watched.told, watched.told_at = sight.state, self._clock.monotonic()
        frame = encode_presence(user, watched.told, sight)
        if self._apart is None:
            self._tell_all(user, watched, frame)
        else:
            self._spawn(self._tell_together(user, watched, frame), f"presence-{user}")

    async def _tell_together(self, user: UserId, watched: _Watched, frame: bytes) -> None:
        """Notify the subscribers who are not blocked; end the subscriptions of blocked ones."""
        assert self._apart is not None
        try:
            apart = await self._apart.list_apart(user)
        except ChatError as exc:
            log.info("watching.not_told", user=user, error=exc.message)
            return
        for watcher in [each for each in watched.watchers if each.user in apart]:
            self.unwatch(watcher, [user])
        self._tell_all(user, watched, frame)

    def _tell_all(self, user: UserId, watched: _Watched, frame: bytes) -> None:
        by_chat: dict[ChatId, list[Watcher]] = {}
        for watcher, chat in watched.watchers.items():
            by_chat.setdefault(chat, []).append(watcher)
        for watcher in by_chat.pop(_DIRECT, ()):
            watcher.signal(frame)
        for chat, watchers in by_chat.items():
            self._spawn(self._tell_members(user, frame, chat, watchers), f"presence-{user}")

    async def _tell_members(
        self, user: UserId, frame: bytes, chat: ChatId, watchers: list[Watcher]
    ) -> None:
        """Notify those subscribers who still share the chat with the user."""
        asked = {user, *(watcher.user for watcher in watchers)}
        try:
            members = await self._members_among(chat, list(asked))
            for watcher in watchers:
                if user in members and watcher.user in members:
                    via = chat
                elif shared := await self._find_shared(watcher.user, {user}):
                    via = shared[user]
                else:
                    self.unwatch(watcher, [user])
                    continue
                watched = self._watched.get(user)
                if watched is not None and watcher in watched.watchers:
                    watched.watchers[watcher] = via
                    watcher.signal(frame)
        except ChatError as exc:
            log.info("watching.not_told", user=user, error=exc.message)

    async def look_again(self) -> None:
        """Renew subscriptions, and find missed changes: a lost notification, a dead gateway."""
        await self._look(list(self._watched))

    async def _look(self, users: list[UserId]) -> None:
        for user, sight in (await self._sights.watch(users)).items():
            self.heard(user, sight)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def encode_presence(user: UserId, state: State, sight: PresenceRecord | None) -> bytes:
    """Return the presence signal of a user, with the last-seen time if they are offline."""
    last_seen: int | UnsetType = UNSET
    if state is State.OFFLINE and sight is not None and sight.last_ms:
        last_seen = sight.last_ms * 1000
    return codec.encode(frames.PresenceSignal("presence", user, state.value, last_seen))
