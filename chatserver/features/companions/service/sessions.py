"""Companion sessions: start, get, end, renew, change version, list.

A session consists of an item in the `chat_session` table and an ordinary chat between the user and
the companion. The item is written first and is authoritative. If a process dies before it creates
the chat, the next access to the session creates it.

::

    create   item ─► chat in `directory` ─► Redis ─► devices notified
    end      change record ─► one transaction: ended item written, active item deleted, chat marked
             as ended ─► Redis: chat version ─► devices notified

A change record (in `{pN}:changing`, a zset) exists until the chat version in Redis has changed. If
a process dies before that, the `repair` worker finds the record and completes the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import attrs

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.errors import Conflict, LostRace, NotFound
from chatserver.features.companions.model import (
    NO_SESSION,
    NO_SUCH_CHAT,
    SESSION_CHANGED,
    SESSION_ENDED,
    Companion,
    CompanionSession,
    describe_active,
    is_same_request,
    session_chat_id,
)
from chatserver.features.companions.service.companions import CompanionCatalog
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.features.companions.warm.sessions import SessionRows
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.membership import HotMembership
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.service.chats.chat_creator import ChatCreator
from chatserver.service.membership.membership_propagation import MembershipPropagation
from chatserver.telemetry.failpoints import failpoint

HOLD_S = 20.0  # the repair worker ignores a change record that is younger than this
TRIES_MAX = 4

Token = Mapping[str, str | int]


class Opened(NamedTuple):
    """A session and its chat."""

    session: CompanionSession
    info: frames.ChatInfo


@attrs.define(eq=False, repr=False, kw_only=True)
class CompanionSessions:
    """Session use cases. Processes with access to the warm tier have one instance each."""

    _rows: SessionRows
    _companions: CompanionRows
    _catalog: CompanionCatalog
    _chat_creator: ChatCreator
    _hot_membership: HotMembership
    _propagation: MembershipPropagation
    _inboxes: Inboxes
    _delivery: RemoteDelivery
    _record_ended: Callable[[ChatId], Awaitable[None]]
    _clock: Clock

    async def create(self, user: UserId, companion: CompanionId, ref: Ref) -> Opened:
        """Start a session with the newest version of a companion.

        Guarantees:
            Idempotent by `ref` while the session is active.
            Of several concurrent requests, one starts a session and the others are rejected.

        Raises:
            NotFound: there is no such companion.
            Conflict: another session is already active; the error contains its chat.
        """
        persona = await self._companions.get_newest(companion)
        session = self._make(user, persona, ref)
        try:
            await self._rows.create(session)
        except Conflict:
            active = await self._rows.find_active(user, companion)
            if active is None:
                raise LostRace(SESSION_CHANGED) from None
            if not is_same_request(active.chat, session.chat):
                raise Conflict(describe_active(active)) from None
            session = active
        failpoint("sessions.before_chat")
        return await self._open(session)

    async def get(self, user: UserId, companion: CompanionId) -> Opened:
        """Return the active session with a companion; create its chat if it is missing.

        Raises:
            NotFound: there is no active session.
        """
        return await self._open(await self._get_active(user, companion))

    async def delete(
        self, user: UserId, companion: CompanionId, chat: ChatId | None = None
    ) -> CompanionSession:
        """End the active session with a companion; with `chat`, only if it is in this chat.

        Guarantees:
            On return, no more messages can be committed in the chat. Its messages stay readable.
            Idempotent: if the session has ended, it is returned; without `chat`, the one that ended
                last.
            Concurrency: all of several concurrent requests return the ended session.

        Raises:
            NotFound: there is no session, or `chat` is not a session of this user and companion.
            LostRace: the session kept changing.
        """
        for _ in range(TRIES_MAX):
            active = await self._rows.find_active(user, companion)
            if active is None or (chat is not None and active.chat != chat):
                old = await self._find_ended(user, companion, chat)
                await self._close(old)
                return old
            chat = active.chat  # a session that a concurrent request starts is not ended
            record = await self._prepare_end(active)
            try:
                old = await self._rows.delete(active, get_now_ms(self._clock))
            except Conflict:
                await self._hot_membership.end(record)
            else:
                failpoint("sessions.before_close")
                await self._close(old)
                await self._hot_membership.end(record)
                return old
        raise LostRace(SESSION_CHANGED)

    async def _find_ended(
        self, user: UserId, companion: CompanionId, chat: ChatId | None
    ) -> CompanionSession:
        if chat is None:
            ended = (await self._rows.list_old(user, companion, limit=1)).items
            if not ended:
                raise NotFound(NO_SESSION)
            return ended[0]
        old = await self._rows.find_old(user, companion, chat)
        if old is None:
            raise NotFound(NO_SUCH_CHAT)
        return old

    async def renew(self, user: UserId, companion: CompanionId, ref: Ref) -> Opened:
        """Atomically end the active session and start another with the newest version.

        Guarantees:
            Idempotent by `ref` while the new session is active.
            There is exactly one active session at any moment.
            If a concurrent request renews the session first, that request's session is returned.

        Raises:
            NotFound: there is no active session, or the companion has been deleted.
            Conflict: a concurrent request ended the session.
        """
        persona = await self._companions.get_newest(companion)
        for number in range(TRIES_MAX):
            active = await self._get_active(user, companion)
            successor = self._make(user, persona, ref)
            if is_same_request(active.chat, successor.chat):
                return await self._open(active)
            record = await self._prepare_end(active)
            try:
                await self._rows.renew(active, successor)
            except Conflict:
                await self._hot_membership.end(record)
                now = await self._rows.find_active(user, companion)
                if now is not None and now.chat != active.chat:
                    return await self._open(now)
                if now is None or number == TRIES_MAX - 1:
                    raise
            else:
                failpoint("sessions.before_close")
                await self._close(active)
                await self._hot_membership.end(record)
                failpoint("sessions.before_chat")
                return await self._open(successor)
        raise LostRace(SESSION_CHANGED)

    async def update_version(
        self, user: UserId, chat: ChatId, version: int | None = None
    ) -> CompanionSession:
        """Switch a session to another version of its companion; default: the newest.

        Guarantees:
            Idempotent.

        Raises:
            NotFound: the chat is not a session of the user, or there is no such version.
            Conflict: the session is no longer active.
        """
        session = await self._catalog.find_session_by_chat(chat)
        if session is None or session.user != user:
            raise NotFound(NO_SUCH_CHAT)
        if not session.is_active:
            raise Conflict(SESSION_ENDED)
        if version is None:
            version = (await self._companions.get_newest(session.companion)).version
        else:
            await self._companions.get_companion(session.companion, version)
        return await self._rows.update_version(session, version)

    async def list_page(
        self, user: UserId, companion: CompanionId | None, start: Token | None, limit: int
    ) -> tuple[list[CompanionSession], Token | None]:
        """Return a page of a user's sessions, and the `start` at which the next page starts.

        Without `companion`: first active sessions, then ended ones, sorted by companion and time.
        With `companion`: first the active session, then ended ones, newest first.
        """
        if companion is None:
            page = await self._rows.list_all(user, limit=limit, start=start)
            return page.items, page.next
        first: list[CompanionSession] = []
        if start is None:
            active = await self._rows.find_active(user, companion)
            first = [] if active is None else [active]
        # An empty token continues with the first ended session.
        start = start or None
        if len(first) == limit:
            page = await self._rows.list_old(user, companion, limit=1, start=start)
            return first, {} if page.items else None
        page = await self._rows.list_old(user, companion, limit=limit - len(first), start=start)
        return [*first, *page.items], page.next

    async def _get_active(self, user: UserId, companion: CompanionId) -> CompanionSession:
        active = await self._rows.find_active(user, companion)
        if active is None:
            raise NotFound(NO_SESSION)
        return active

    def _make(self, user: UserId, persona: Companion, ref: Ref) -> CompanionSession:
        chat = session_chat_id(user, persona.id, ref, self._clock.time())
        return CompanionSession(user, persona.id, chat, persona.version, get_now_ms(self._clock))

    async def _open(self, session: CompanionSession) -> Opened:
        """Create the session's chat if it is missing, and notify the user's devices."""
        persona = await self._companions.get_companion(session.companion, session.ai_version)
        info = await self._chat_creator.open_companion_chat(
            session.chat, session.user, session.companion, persona.name
        )
        body = codec.encode_chat_event_body(info)
        results = await self._inboxes.append_event(
            [session.user], session.chat, body, is_listed=True
        )
        for result in results:
            if result.appended:
                self._delivery.notify_seq(result.user, result.seq, result.gateways)
        return Opened(session, info)

    async def _prepare_end(self, active: CompanionSession) -> str:
        """Create the chat if it is missing, and record a membership change in progress.

        Return the record's name.
        """
        persona = await self._companions.get_companion(active.companion, active.ai_version)
        await self._chat_creator.open_companion_chat(
            active.chat, active.user, active.companion, persona.name
        )
        return await self._hot_membership.begin(active.chat, HOLD_S)

    async def _close(self, old: CompanionSession) -> None:
        """Apply the end of a session in Redis, and queue it for the assistant worker."""
        await self._propagation.finish(old.chat)
        await self._record_ended(old.chat)
