"""Presence subscriptions: notify sessions when the presence of other users changes.

Users see each other's presence only if they share a chat (guarantee P7): a group, or a direct chat
in which both have sent messages. This is checked in Redis when a subscription starts and before
each notification. `refresh` finds changes that were lost between gateways, and renews this
gateway's subscriptions in Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import attrs
import structlog
from msgspec import UNSET, UnsetType

from chatserver.domain.clock import Clock
from chatserver.domain.ids import DIRECT_PREFIX, ChatId, UserId, direct_chat_id
from chatserver.domain.presence import PresenceRecord, PresenceState
from chatserver.errors import BadRequest, ChatError, NotFound
from chatserver.hot.chats.answered_direct_chats import AnsweredDirectChats
from chatserver.hot.users.blocks import HotBlocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.presence_states import PresenceStates
from chatserver.protocol import codec, frames

log = structlog.get_logger()

SUBSCRIBED_USERS_MAX = 500
NOTIFY_INTERVAL_S = 1.0  # minimum time between two notifications about a user
SHARED_CHATS_MAX = 100  # how many of a user's newest groups are searched for a shared one
# Used instead of a chat id if the shared chat is a direct chat. Its members never change, so they
# are not checked again.
_DIRECT = ChatId("")


class PresenceSubscriber(Protocol):
    """A session with presence subscriptions. Signals to a closed session are dropped."""

    user: UserId

    @property
    def is_live(self) -> bool: ...

    def send_signal(self, frame: bytes) -> None: ...


class _Subject:
    """A user with subscribers: the chat shared with each subscriber, and the user's presence."""

    __slots__ = ("latest", "sent", "sent_at", "subscribers", "timer")

    def __init__(self) -> None:
        self.subscribers: dict[PresenceSubscriber, ChatId] = {}
        self.latest: PresenceRecord | None = None
        self.sent: PresenceState | None = None
        self.sent_at = float("-inf")
        self.timer: asyncio.TimerHandle | None = None


@attrs.define(eq=False, repr=False, kw_only=True)
class PresenceSubscriptions:
    """One gateway's presence subscriptions; at most `users_max` per session.

    `load_chat` loads a chat into Redis.
    """

    _states: PresenceStates
    _inboxes: Inboxes
    _load_chat: Callable[[ChatId], Awaitable[object]]
    _users_max: int
    _clock: Clock
    _blocks: HotBlocks | None = None
    _direct_chats: AnsweredDirectChats | None = None
    _tasks: set[asyncio.Task[None]] = attrs.field(factory=set, init=False)
    _subjects: dict[UserId, _Subject] = attrs.field(factory=dict, init=False)
    _users_by_subscriber: dict[PresenceSubscriber, set[UserId]] = attrs.field(
        factory=dict, init=False
    )
    # The users in `subscribe` calls in progress; `unsubscribe` removes users from these sets.
    _pending_by_subscriber: dict[PresenceSubscriber, list[set[UserId]]] = attrs.field(
        factory=dict, init=False
    )

    # session commands

    async def subscribe(self, subscriber: PresenceSubscriber, users: Iterable[UserId]) -> None:
        """Send the subscriber the users' presence, now and after each change.

        Users who share no chat with the subscriber are ignored.

        Raises:
            BadRequest: the session would exceed its limit on subscriptions.
            Unavailable: Redis does not respond.
        """
        requested = set(users) - {subscriber.user}
        self._check_limit(subscriber, requested)
        calls = self._pending_by_subscriber.setdefault(subscriber, [])
        calls.append(requested)
        try:
            visible = await self._find_shared(subscriber.user, set(requested))
        finally:
            calls[:] = [pending for pending in calls if pending is not requested]
            if not calls:
                self._pending_by_subscriber.pop(subscriber, None)
        shared = {user: chat for user, chat in visible.items() if user in requested}
        if not shared or not subscriber.is_live:
            return
        self._check_limit(subscriber, shared)
        for user, chat in shared.items():
            self._subjects.setdefault(user, _Subject()).subscribers[subscriber] = chat
        self._users_by_subscriber.setdefault(subscriber, set()).update(shared)
        await self._refresh(list(shared))
        for user in shared:
            subject = self._subjects.get(user)
            if subject and subject.sent is not None and subscriber in subject.subscribers:
                # Send the state that the other subscribers have. If a newer state is pending, all
                # subscribers will get it together.
                subscriber.send_signal(encode_presence(user, subject.sent, subject.latest))

    async def list_presence(
        self, viewer: UserId, users: Iterable[UserId]
    ) -> dict[UserId, PresenceRecord]:
        """Return the presence of those users who share a chat with the viewer.

        Raises:
            Unavailable: Redis does not respond.
        """
        shared = await self._find_shared(viewer, set(users) - {viewer})
        return await self._states.find(list(shared)) if shared else {}

    async def find_visible(self, viewer: UserId, users: Iterable[UserId]) -> set[UserId]:
        """Return the users among `users` who share a chat with the viewer, or are the viewer.

        Raises:
            Unavailable: Redis does not respond.
        """
        requested = set(users)
        return set(await self._find_shared(viewer, requested - {viewer})) | (requested & {viewer})

    def _check_limit(self, subscriber: PresenceSubscriber, users: Iterable[UserId]) -> None:
        if len(self._users_by_subscriber.get(subscriber, set()).union(users)) > self._users_max:
            raise BadRequest(f"users: a session may subscribe to at most {self._users_max} users")

    def unsubscribe(self, subscriber: PresenceSubscriber, users: Iterable[UserId]) -> None:
        """End subscriptions to these users, including those that are being started."""
        users = set(users)
        for requested in self._pending_by_subscriber.get(subscriber, ()):
            requested -= users
        subscribed = self._users_by_subscriber.get(subscriber)
        if subscribed is None:
            return
        ended = subscribed.intersection(users)
        subscribed -= ended
        if not subscribed:
            del self._users_by_subscriber[subscriber]
        unused = [user for user in ended if self._remove(subscriber, user)]
        if unused:
            self._spawn(self._unsubscribe_gateway(unused), "presence-unsubscribe")

    def remove_subscriber(self, subscriber: PresenceSubscriber) -> None:
        """End all subscriptions of a session that has closed."""
        self.unsubscribe(subscriber, list(self._users_by_subscriber.get(subscriber, ())))

    def _remove(self, subscriber: PresenceSubscriber, user: UserId) -> bool:
        """Remove a subscription; return True if it was the last one to `user` on this gateway."""
        subject = self._subjects[user]
        del subject.subscribers[subscriber]
        if subject.subscribers:
            return False
        if subject.timer is not None:
            subject.timer.cancel()
        del self._subjects[user]
        return True

    async def _unsubscribe_gateway(self, users: Sequence[UserId]) -> None:
        try:
            await self._states.unsubscribe([user for user in users if user not in self._subjects])
        except ChatError as exc:
            log.info("presence.unsubscribe_failed", error=exc.message)  # the subscriptions expire

    # visibility

    async def _find_shared(self, user: UserId, others: set[UserId]) -> dict[UserId, ChatId]:
        """Map each of `others` to a chat shared with `user`; omit users who share no chat."""
        if others and self._blocks is not None:
            others = others - await self._blocks.list_blocked(user)
        if not others:
            return {}
        chats = [listed.chat for listed in await self._inboxes.list_chats(user)]
        chat_ids = set(chats)
        partners = [other for other in others if direct_chat_id(user, other) in chat_ids]
        if partners and self._direct_chats is not None:
            # A user's presence is hidden from strangers to whom the user has not replied.
            partners = list(await self._direct_chats.find_answered(user, partners))
        shared = dict.fromkeys(partners, _DIRECT)
        groups = [chat for chat in chats if not chat.startswith(DIRECT_PREFIX)][:SHARED_CHATS_MAX]
        missing = [other for other in others if other not in shared]
        if missing and groups:
            candidates = [user, *missing]
            member_lists = await asyncio.gather(
                *(self._find_members(group, candidates) for group in groups)
            )
            for chat, members in zip(groups, member_lists, strict=True):
                if user in members:
                    shared |= {other: chat for other in missing if other in members}
        return shared

    async def _find_members(self, chat: ChatId, users: Sequence[UserId]) -> set[UserId]:
        """Return which of `users` are members of the chat; load the chat into Redis if needed."""
        members = await self._states.find_members(chat, users)
        if members is None:
            try:
                await self._load_chat(chat)
            except NotFound:
                return set()
            members = await self._states.find_members(chat, users)
        return members or set()

    # notifications

    def handle_change(self, user: UserId, record: PresenceRecord) -> None:
        """Notify the subscribers of a user whose presence may have changed."""
        subject = self._subjects.get(user)
        if subject is None or (subject.latest and subject.latest.version > record.version):
            return
        subject.latest = record
        if subject.sent is None:
            # `subscribe` sends this state to the subscriber, so it is not sent here.
            subject.sent, subject.sent_at = record.state, self._clock.monotonic()
        elif subject.sent is not record.state and subject.timer is None:
            wait_s = subject.sent_at + NOTIFY_INTERVAL_S - self._clock.monotonic()
            loop = asyncio.get_running_loop()
            subject.timer = loop.call_later(max(0.0, wait_s), self._notify, user, subject)

    def _notify(self, user: UserId, subject: _Subject) -> None:
        subject.timer = None
        record = subject.latest
        if record is None or record.state is subject.sent:
            return  # the state has changed and changed back since the last notification
        subject.sent, subject.sent_at = record.state, self._clock.monotonic()
        frame = encode_presence(user, subject.sent, record)
        if self._blocks is None:
            self._notify_all(user, subject, frame)
        else:
            work = self._notify_unblocked(user, subject, frame, self._blocks)
            self._spawn(work, f"presence-{user}")

    async def _notify_unblocked(
        self, user: UserId, subject: _Subject, frame: bytes, blocks: HotBlocks
    ) -> None:
        """Notify the unblocked subscribers, and end the subscriptions of blocked ones."""
        try:
            blocked = await blocks.list_blocked(user)
        except ChatError as exc:
            log.info("presence.notify_failed", user=user, error=exc.message)
            return
        for subscriber in [
            follower for follower in subject.subscribers if follower.user in blocked
        ]:
            self.unsubscribe(subscriber, [user])
        self._notify_all(user, subject, frame)

    def _notify_all(self, user: UserId, subject: _Subject, frame: bytes) -> None:
        by_chat: dict[ChatId, list[PresenceSubscriber]] = {}
        for subscriber, chat in subject.subscribers.items():
            by_chat.setdefault(chat, []).append(subscriber)
        for subscriber in by_chat.pop(_DIRECT, ()):
            subscriber.send_signal(frame)
        for chat, subscribers in by_chat.items():
            self._spawn(self._notify_members(user, frame, chat, subscribers), f"presence-{user}")

    async def _notify_members(
        self, user: UserId, frame: bytes, chat: ChatId, subscribers: list[PresenceSubscriber]
    ) -> None:
        users = {user, *(subscriber.user for subscriber in subscribers)}
        try:
            members = await self._find_members(chat, list(users))
            for subscriber in subscribers:
                if user in members and subscriber.user in members:
                    shared = chat
                elif visible := await self._find_shared(subscriber.user, {user}):
                    shared = visible[user]
                else:
                    self.unsubscribe(subscriber, [user])
                    continue
                subject = self._subjects.get(user)
                if subject is not None and subscriber in subject.subscribers:
                    subject.subscribers[subscriber] = shared
                    subscriber.send_signal(frame)
        except ChatError as exc:
            log.info("presence.notify_failed", user=user, error=exc.message)

    async def refresh(self) -> None:
        """Renew subscriptions in Redis, and find changes whose notifications were lost."""
        await self._refresh(list(self._subjects))

    async def _refresh(self, users: list[UserId]) -> None:
        for user, record in (await self._states.subscribe(users)).items():
            self.handle_change(user, record)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def encode_presence(user: UserId, state: PresenceState, record: PresenceRecord | None) -> bytes:
    """Encode a user's presence signal, with the last-seen time if the user is offline."""
    last_seen: int | UnsetType = UNSET
    if state is PresenceState.OFFLINE and record is not None and record.last_ms:
        last_seen = record.last_ms * 1000
    return codec.encode(frames.PresenceSignal("presence", user, state.value, last_seen))
