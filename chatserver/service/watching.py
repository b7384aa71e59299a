"""Who watches whom: tells sessions how present the users are whom they asked about.

Only users who share a chat see each other's presence (promise P7): a direct chat in which the other
one has written, or a group by asking Redis for both memberships, when a watch begins and again
whenever there is something to tell. A change that was lost on its way between gateways is found by
`look_again`, which also keeps this gateway subscribed.
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
from chatserver.domain.presence import Sight, State
from chatserver.errors import BadRequest, ChatError, NotFound
from chatserver.protocol import codec, frames

log = structlog.get_logger()

TELL_INTERVAL_S = 1.0
SHARED_CHATS_MAX = 100  # newest groups of a watcher that are searched for somebody
_DIRECT = ChatId("")  # two users' direct chat has no other members, ever


class Watcher(Protocol):
    """A session that wants to know."""

    user: UserId

    @property
    def is_live(self) -> bool: ...

    def signal(self, frame: bytes) -> None: ...


class Sights(Protocol):
    """Where it is known how present users are."""

    async def watch(self, users: Sequence[UserId]) -> dict[UserId, Sight]: ...

    async def unwatch(self, users: Sequence[UserId]) -> None: ...

    async def look(self, users: Sequence[UserId]) -> dict[UserId, Sight]: ...

    async def find_members(self, chat: ChatId, users: Sequence[UserId]) -> set[UserId] | None: ...


class Boxes(Protocol):
    """Users' chats."""

    async def list_chats(self, user: UserId) -> list[BoxChat]: ...


class Apart(Protocol):
    """Who blocks whom, either way."""

    async def list_apart(self, user: UserId) -> set[UserId]: ...


class Directs(Protocol):
    """Direct chats that were answered."""

    async def find_answered(self, user: UserId, others: Collection[UserId]) -> set[UserId]: ...


class _Watched:
    """A user whom somebody here watches: by whom, by virtue of which chat, and what was told."""

    __slots__ = ("sight", "timer", "told", "told_at", "watchers")

    def __init__(self) -> None:
        self.watchers: dict[Watcher, ChatId] = {}
        self.sight: Sight | None = None
        self.told: State | None = None
        self.told_at = float("-inf")
        self.timer: asyncio.TimerHandle | None = None


class Watching:
    """The watches of one gateway. Bounds: `watched_max` users per session."""

    def __init__(
        self,
        sights: Sights,
        boxes: Boxes,
        open_chat: Callable[[ChatId], Awaitable[object]],
        watched_max: int,
        clock: Clock,
        apart: Apart | None = None,
        directs: Directs | None = None,
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

    # what sessions ask for

    async def watch(self, watcher: Watcher, users: Iterable[UserId]) -> None:
        """Tell the watcher how present the users are, now and whenever it changes.

        Nothing is told of those who share no chat with the watcher, nor that this is so.

        Raises:
            BadRequest: that would be more than one session may watch.
            Unavailable: Redis does not answer.
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
                # What the others were told: what is newer follows for all of them.
                watcher.signal(encode_presence(user, watched.told, watched.sight))

    async def look(self, asker: UserId, users: Iterable[UserId]) -> dict[UserId, Sight]:
        """Return how present users are now; of those who share no chat with the asker, nothing.

        Raises:
            Unavailable: Redis does not answer.
        """
        shared = await self._find_shared(asker, set(users) - {asker})
        return await self._sights.look(list(shared)) if shared else {}

    async def find_near(self, asker: UserId, users: Iterable[UserId]) -> set[UserId]:
        """Return those of the users who share a chat with the asker, himself if he is among them.

        Raises:
            Unavailable: Redis does not answer.
        """
        asked = set(users)
        return set(await self._find_shared(asker, asked - {asker})) | (asked & {asker})

    def _check_room(self, watcher: Watcher, wanted: Iterable[UserId]) -> None:
        if len(self._of.get(watcher, set()).union(wanted)) > self._watched_max:
            raise BadRequest(f"users: a session may watch at most {self._watched_max}")

    def unwatch(self, watcher: Watcher, users: Iterable[UserId]) -> None:
        """Tell the watcher no more of these users."""
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
        """The watcher is over."""
        self.unwatch(watcher, list(self._of.get(watcher, ())))

    def _drop(self, watcher: Watcher, user: UserId) -> bool:
        """Forget one watch; True if it was the last one of the user."""
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
            log.info("watching.not_left", error=exc.message)  # it expires by itself

    # who may know of whom

    async def _find_shared(self, user: UserId, others: set[UserId]) -> dict[UserId, ChatId]:
        """Return for each of the others that shares a chat with the user one such chat."""
        if others and self._apart is not None:
            others = others - await self._apart.list_apart(user)
        if not others:
            return {}
        chats = [box.chat for box in await self._boxes.list_chats(user)]
        mine = set(chats)
        directs = {other: direct_chat_id(user, other) for other in others}
        near = [other for other, chat in directs.items() if chat in mine]
        if near and self._directs is not None:
            # Opening a chat with a stranger is not enough to see when they are online.
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

    # what happens

    def heard(self, user: UserId, sight: Sight) -> None:
        """A user's state has changed, or may have."""
        watched = self._watched.get(user)
        if watched is None or (watched.sight and watched.sight.version > sight.version):
            return
        watched.sight = sight
        if watched.told is None:
            # Whoever watches first is told in answer.
            watched.told, watched.told_at = sight.state, self._clock.monotonic()
        elif watched.told is not sight.state and watched.timer is None:
            wait_s = watched.told_at + TELL_INTERVAL_S - self._clock.monotonic()
            loop = asyncio.get_running_loop()
            watched.timer = loop.call_later(max(0.0, wait_s), self._tell, user, watched)

    def _tell(self, user: UserId, watched: _Watched) -> None:
        watched.timer = None
        sight = watched.sight
        if sight is None or sight.state is watched.told:
            return  # there and back within a second
        watched.told, watched.told_at = sight.state, self._clock.monotonic()
        frame = encode_presence(user, watched.told, sight)
        if self._apart is None:
            self._tell_all(user, watched, frame)
        else:
            self._spawn(self._tell_together(user, watched, frame), f"presence-{user}")

    async def _tell_together(self, user: UserId, watched: _Watched, frame: bytes) -> None:
        """Tell those watchers who are not apart from the user; the others watch no more."""
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
        """Tell those who are still in a chat with the user."""
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
        """Watch on, and find what was not told: a lost mail, a gateway that died."""
        await self._look(list(self._watched))

    async def _look(self, users: list[UserId]) -> None:
        for user, sight in (await self._sights.watch(users)).items():
            self.heard(user, sight)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def encode_presence(user: UserId, state: State, sight: Sight | None) -> bytes:
    """Return the signal that tells how present a user is, and since when not."""
    last_seen: int | UnsetType = UNSET
    if state is State.OFFLINE and sight is not None and sight.last_ms:
        last_seen = sight.last_ms * 1000
    return codec.encode(frames.PresenceSignal("presence", user, state.value, last_seen))
