"""Session opening: `hello`, authentication, registration and `welcome`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chatserver.domain.access.caller import CALLER
from chatserver.domain.access.logins import Claims
from chatserver.domain.cursor_coverage import Coverage
from chatserver.domain.ids import DeviceId, Epoch, Seq
from chatserver.domain.inboxes import InboxState
from chatserver.errors import Banned, ChatError, Unauthenticated, UnknownKey
from chatserver.gateway.session.session import Session
from chatserver.gateway.session.session_auth import get_close_code
from chatserver.gateway.session.session_registration import SessionRegistration
from chatserver.gateway.session.shared_session_context import SessionContext
from chatserver.gateway.session.state_machine import SessionStage
from chatserver.gateway.session.welcome import find_start, make_welcome
from chatserver.gateway.transport.admission_control import Admission
from chatserver.gateway.transport.connection import Connection
from chatserver.protocol import codec, frames
from chatserver.protocol.error_codes import CODES, Close

HELLO_TIMEOUT_S = 10.0  # a connection that sends no `hello` within this time is closed


class SessionOpening:
    """Opens one session. `on_registered` is called when the session's user has been set."""

    __slots__ = (
        "_admission",
        "_connection",
        "_context",
        "_directory",
        "_on_authenticated",
        "_on_registered",
        "_session",
    )

    def __init__(
        self,
        *,
        context: SessionContext,
        connection: Connection,
        session: Session,
        directory: SessionRegistration,
        admission: Admission,
        on_authenticated: Callable[[Connection], None],
        on_registered: Callable[[], None],
    ) -> None:
        self._context = context
        self._connection = connection
        self._session = session
        self._directory = directory
        self._admission = admission
        self._on_authenticated = on_authenticated
        self._on_registered = on_registered

    def start(self, frame: frames.Hello) -> None:
        """Handle `hello`. The session goes live, or the connection is closed."""
        claims = None
        try:
            claims = self._context.container.authentication.verify(frame.token)
        except UnknownKey:
            pass  # `_open` fetches the host's key, then verifies the token
        except ChatError as exc:
            self.refuse(Close.UNAUTHENTICATED, exc.public_message)
            return
        self._connection.cancel_deadline()
        self._session.state.hello()

        def on_crash() -> None:
            self._session.close(Close.OVERLOADED, "internal error; hello failed", 1000)

        self._context.tasks.spawn(self._open(frame, claims), f"hello-{self._session.id}", on_crash)

    def refuse(self, code: int, reason: str) -> None:
        """Close the connection, and count the failure against the client's address."""
        self._admission.charge_failure(self._connection.peer)
        self._session.close(code, reason)

    async def _open(self, frame: frames.Hello, claims: Claims | None) -> None:
        authentication = self._context.container.authentication
        try:
            if claims is None:
                claims = await authentication.authenticate(frame.token)
            else:
                # Check before registering: a revoked token must not replace the current session.
                await authentication.check(claims)
            if not self._session.is_live:
                return
            self._register(claims, frame)
            CALLER.set(self._session.caller)
            state, _ = await asyncio.gather(
                self._session.publish_presence(), self._directory.claim([self._session])
            )
            if self._session.state.stage is not SessionStage.OPENING:
                return
            await self._send_welcome(state, frame)
        except (Banned, Unauthenticated) as exc:
            self.refuse(get_close_code(exc), exc.public_message)
        except ChatError as exc:
            meaning = CODES[exc.code]
            self._session.close(
                meaning.close or Close.OVERLOADED, exc.public_message, exc.retry_after_ms
            )

    def _register(self, claims: Claims, frame: frames.Hello) -> None:
        self._on_authenticated(self._connection)
        is_foreground = frame.state == "fg"
        self._session.authenticate(claims, DeviceId(frame.device), is_foreground=is_foreground)
        # If this closes an older session of the device, the user's rate limits are removed.
        self._directory.register(self._session)
        self._on_registered()

    async def _send_welcome(self, state: InboxState, frame: frames.Hello) -> None:
        session = self._session
        assert session.auth is not None
        coverage, start = find_start(frame.cursor, state)
        is_known = frame.cursor is not None and coverage is Coverage.CURRENT
        large = frame.large if is_known else None
        positions, _ = await asyncio.gather(
            self._context.channels.open_for(session.user, start, large), session.auth.check()
        )
        settings = self._context.all_settings
        welcome = make_welcome(session.id, session.user, state, positions.large, settings)
        self._connection.send_text(codec.encode(welcome))
        if coverage is Coverage.CURRENT:
            session.state.welcome(state.epoch, start)
        else:
            assert frame.cursor is not None
            session.state.welcome(Epoch(frame.cursor.epoch), Seq(frame.cursor.seq))
            if not state.is_known:
                session.go_live_and_recover()
                return
            snapshot = await self._context.requests.get_snapshot(
                session.user, state, coverage, positions.large
            )
            session.send_snapshot(snapshot, state)
        session.go_live(state.head)
        session.enter_large_chats(positions, is_loaded=state.is_known)
        if frame.unstored and frame.cursor is not None and frame.cursor.epoch == state.epoch:
            session.report_stored(frame.unstored)
