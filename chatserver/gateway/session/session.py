"""Session of one connected device: event delivery, recovery and close.

`SessionState` decides what can be sent; this module does the I/O. Each event is sent once and in
order (guarantee P4). If a device lacks events, for example after it reconnects, the pump (`_pump`)
reads them from the inbox. A chat's *summary* is its item in the chat list; it replaces missing
entries of a large chat. Client frames are handled by `command_handler`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec
import structlog

from chatserver.domain.access.caller import RequestCaller
from chatserver.domain.access.logins import Claims, RevocationMarks
from chatserver.domain.cursor_coverage import Coverage
from chatserver.domain.ids import ChatId, DeviceId, Epoch, Seq, SessionId, UserId, new_id
from chatserver.domain.inboxes import InboxState
from chatserver.domain.jitter import add_jitter
from chatserver.domain.presence import SessionActivity
from chatserver.errors import ChatError, NotFound, RateLimited, Unavailable
from chatserver.gateway.delivery.large_chat_channel import (
    ChannelStart,
    LargeChatPositions,
    read_transition,
)
from chatserver.gateway.session.session_auth import SessionAuth
from chatserver.gateway.session.shared_session_context import SessionContext
from chatserver.gateway.session.state_machine import (
    Decision,
    DeviceCursor,
    SessionStage,
    SessionState,
)
from chatserver.gateway.transport.connection import Connection, Phase
from chatserver.gateway.transport.frame_codec import encode_text_frame
from chatserver.protocol import codec, frames
from chatserver.protocol.error_codes import Close
from chatserver.service.history.sync import EventsLost, Missed

log = structlog.get_logger()

PUMP_PAGE = 200
RETRY_S, RETRY_S_MAX = 1.0, 8.0  # backoff for snapshots and chat summaries while a tier is down
SEND, LIVE = Decision.SEND, SessionStage.LIVE  # for `push`: globals are faster than enum attributes


class Session:
    """Session of one device, from the start to the end of its connection."""

    __slots__ = (
        "_connection",
        "_context",
        "_is_loading",
        "_is_pumping",
        "_is_recovering",
        "_on_end",
        "_on_live",
        "_summaries",
        "_unreported",
        "activity",
        "auth",
        "caller",
        "device",
        "id",
        "started_ms",
        "state",
        "user",
    )

    def __init__(
        self,
        *,
        context: SessionContext,
        connection: Connection,
        on_live: Callable[[], None],
        on_end: Callable[[Session], None],
    ) -> None:
        self._context = context
        self._connection = connection
        self._on_live = on_live  # callback that processes waiting frames
        self._on_end = on_end
        self._is_pumping = self._is_recovering = self._is_loading = False
        # Large chats whose summary is being read, each with an object that identifies the task.
        self._summaries: dict[ChatId, object] = {}
        # The seq up to which the device waits for `stored`, by epoch and chat.
        self._unreported: dict[tuple[Epoch, ChatId], Seq] = {}
        self.state = SessionState()
        self.auth: SessionAuth | None = None  # set by `authenticate`
        self.started_ms = 0
        self.activity: SessionActivity
        self.id = SessionId(new_id())
        self.user = UserId("")
        self.caller = RequestCaller()  # set after `authenticate`, and when the token is renewed
        self.device = DeviceId("")

    @property
    def is_busy(self) -> bool:
        return self.state.is_busy

    @property
    def is_live(self) -> bool:
        """True from the accepted `hello` until the session ends."""
        return self.state.is_open

    @property
    def epoch(self) -> Epoch:
        """The epoch that the device's inbox position belongs to."""
        return self.state.cursor.epoch

    @property
    def awaits_reset(self) -> bool:
        """True while the device's epoch is outdated and its `reset` has not been sent."""
        return self.epoch != self._context.container.hot.whole_epoch

    # start

    def authenticate(self, claims: Claims, device: DeviceId, *, is_foreground: bool) -> None:
        """Set the user and device of a session with valid claims."""
        container = self._context.container
        self.user, self.device = claims.user, device
        self.auth = SessionAuth(
            claims,
            authentication=container.authentication,
            expiry=self._context.token_expiry,
            close=self.close,
        )
        self.activity = container.user_presence.create_activity(is_foreground=is_foreground)

    async def publish_presence(self) -> InboxState:
        """Publish the user's presence; return the inbox state, loading it if necessary.

        Raises:
            Unavailable: Redis does not respond.
        """
        container = self._context.container
        (state,) = await container.presence.set_online([self.user])
        if not state.is_known:
            try:
                await container.warm.load_user(self.user)
            except (Unavailable, RateLimited) as exc:
                # The session works without DynamoDB; loading the user is retried later.
                log.warning("session.user_not_loaded", user=self.user, error=exc.message)
            # Read the state again, because the inbox may have grown while the user was loaded.
            (state,) = await container.presence.set_online([self.user])
        return state

    def enter_large_chats(self, positions: LargeChatPositions, *, is_loaded: bool) -> None:
        """Start large-chat delivery. `is_loaded`: `positions` has all of the user's large chats."""
        if self.state.stage is not LIVE:
            return
        if self._is_current(self.state.cursor):
            self._context.channels.enter(self, positions)
        else:
            self._recover()  # the epoch changed while `positions` was read
        if not is_loaded and not self._is_loading:
            self._is_loading = True
            self._context.tasks.spawn(self._load_later(), f"load-{self.id}")

    async def _load_later(self) -> None:
        """Load the user's large chats once DynamoDB is available; then send their summaries."""
        positions: LargeChatPositions | None = None
        while positions is None and self.state.stage is not SessionStage.CLOSED:
            await asyncio.sleep(add_jitter(2.0, 0.5, 1.5))
            with contextlib.suppress(ChatError):
                if (await self.publish_presence()).is_known:
                    seq = self.state.cursor.seq
                    positions = await self._context.channels.open_for(self.user, seq)
        self._is_loading = False
        for start in positions.starts if positions is not None else ():
            self.recover_chat(start.channel.chat)

    def go_live(self, head: Seq) -> None:
        """Start sending the inbox events above the device's position; process waiting frames."""
        if self.state.go_live(head):
            # Events that arrived while the session was opening are not lost: the pump reads them.
            self._pump_if_behind(is_resuming=True)
            self._on_live()

    # events

    def push(self, epoch: Epoch, seq: Seq, parts: tuple[bytes, ...], size: int) -> None:
        """Send event `seq` if it is the next one for the device. `parts` are parts of its frame."""
        decision = self.state.handle_event(epoch, seq)
        if decision is SEND:
            self._context.counters.pushed += 1
            self._connection.send_parts(parts, size)
        elif decision is Decision.GAP:
            self._pump_if_behind()

    def send_frame(self, frame: bytes) -> None:
        if self.state.stage is LIVE:
            self._context.counters.pushed += 1
            self._connection.send_frame(frame)

    def notify_seq(self, seq: Seq) -> None:
        """Read the inbox after it has grown to `seq`."""
        if self.state.record_head(seq):
            self._pump_if_behind()

    def compare(self, state: InboxState) -> None:
        """Compare the device's position with the inbox to detect lost events or a new epoch."""
        if self.state.stage is not LIVE:
            return
        if state.epoch == self.epoch:
            self.notify_seq(state.head)
        else:
            self._recover()

    def send_signal(self, frame: bytes) -> None:
        if self.state.stage is LIVE and not self._connection.is_slow:
            self._connection.send_text(frame)

    def send_stored(self, frame: bytes) -> None:
        """Send a `stored` frame if the device is in the hot tier's current epoch."""
        if self.state.can_report_stored(self._context.container.hot.whole_epoch):
            self._connection.send_frame(frame)

    def report_stored(self, unstored: Mapping[str, int]) -> None:
        """Send `stored` for each chat in `unstored`: now, and again once its seq is stored."""
        epoch, is_reporting = self.epoch, bool(self._unreported)
        for chat, seq in unstored.items():
            key = epoch, ChatId(chat)
            self._unreported[key] = Seq(max(seq, self._unreported.get(key, 0)))
        if self._unreported and not is_reporting:
            self._context.tasks.spawn(
                self._report_stored(), f"stored-{self.id}", self._unreported.clear
            )

    def report_stored_again(self, frame: object, response: object) -> None:
        """Send `stored` for a change that was made before: the first one may have been lost."""
        match frame:
            case frames.Delete(scope="me"):
                return
            case frames.Edit() | frames.Delete() | frames.React():
                if isinstance(response, frames.Ack) and response.dup:
                    self.report_stored({frame.chat: response.seq})

    async def _report_stored(self) -> None:
        """Send `stored` for the chats in `_unreported`, one by one; retry while a tier is down."""
        wait_s = RETRY_S
        while self._unreported and self.state.stage is not SessionStage.CLOSED:
            key = epoch, chat = next(iter(self._unreported))
            try:
                reader = await self._context.container.members.get_reader(chat, self.user)
            except NotFound:
                self._unreported.pop(key)
                continue
            except ChatError as exc:
                if wait_s == RETRY_S:
                    log.warning("session.stored_delayed", chat=chat, error=exc.message)
                await asyncio.sleep(add_jitter(wait_s, 0.5, 1.5))
                wait_s = min(2 * wait_s, RETRY_S_MAX)
                self._unreported[key] = self._unreported.pop(key)  # retry after the other chats
                continue
            seq = Seq(min(self._unreported.pop(key), reader.head))
            if self.epoch != epoch:
                continue  # in the new epoch, this seq may belong to another message
            if reader.stored:
                self.send_stored(
                    encode_text_frame(codec.encode(frames.Stored(chat, reader.stored)))
                )
            if reader.stored < seq:
                self._wait_for_stored(chat, seq, epoch)

    def _wait_for_stored(self, chat: ChatId, seq: Seq, epoch: Epoch) -> None:
        """Send `stored` once the chat is stored up to `seq`, unless the epoch changes first."""

        def on_stored() -> None:
            if self.epoch == epoch:
                self.report_stored({chat: seq})  # `seq` itself may be a dead letter

        def on_timeout() -> None:
            if (
                self.state.stage is not SessionStage.CLOSED
                and self._context.container.hot.whole_epoch == epoch
            ):
                self._wait_for_stored(chat, seq, epoch)

        waits = self._context.stored_waits
        if not waits.add(chat, seq, on_stored, on_timeout, is_watermark=True):
            log.warning("session.stored_unconfirmed", chat=chat, reason="too_many_waits")

    async def wait_for_room(self) -> None:
        await self._connection.wait_for_room()

    def recover_chat(self, chat: ChatId) -> None:
        """Send a chat's summary in place of missing log entries; the device then reads history."""
        if self.state.stage is LIVE and not self._is_current(self.state.cursor):
            self._recover()  # the snapshot has the summary of every chat
        elif chat not in self._summaries:
            task = self._summaries[chat] = object()
            self._context.tasks.spawn(self._send_summary(chat, task), f"summary-{self.id}")

    async def _send_summary(self, chat: ChatId, task: object) -> None:
        """Send `too_long` with the chat's summary, and resume large-chat delivery.

        Delivery resumes at the chat seq that was read just before the summary.

        Guarantees:
            One task per chat: only the task in `_summaries` sends the summary.
            Epoch: nothing from another epoch is sent. If a snapshot is sent during the read, the
                summary is not sent.
            End: no summary is sent if, during the read, the chat stops being large or the user is
                removed from it.
        """
        cursor = self.state.cursor
        try:
            start, summary = await self._read_summary(chat, cursor)
        finally:
            is_wanted = self._summaries.get(chat) is task
            if is_wanted:
                del self._summaries[chat]
        if summary is not None and is_wanted and self._is_current(cursor):
            large = [] if start is None else [frames.LargeChat(chat, start.after)]
            known = frames.Cursor(cursor.epoch, cursor.seq)
            self._send(frames.TooLong(known, [summary], large=large))
            if start is not None:
                self._context.channels.attach(self, start)

    async def _read_summary(
        self, chat: ChatId, cursor: DeviceCursor
    ) -> tuple[ChannelStart | None, frames.ChatSummary | None]:
        """Return `(start, summary)`: where large-chat delivery resumes, and the chat's summary.

        Retries while a tier is down. Returns `(None, None)` once `cursor` is outdated.
        """
        wait_s = RETRY_S
        while self._is_current(cursor):
            try:
                start = await self._context.channels.find_again(self, chat)
                # Read the summary after `start`: if the user is removed in between, the entry
                # that removes them has a later seq and will be delivered.
                return start, await self._context.container.chats.get_summary(self.user, chat)
            except ChatError as exc:
                if wait_s == RETRY_S:
                    log.warning("session.summary_delayed", session=self.id, error=exc.message)
            await asyncio.sleep(add_jitter(wait_s, 0.5, 1.5))
            wait_s = min(2 * wait_s, RETRY_S_MAX)
        return None, None

    def _pump_if_behind(self, *, is_resuming: bool = False) -> None:
        if self.state.cursor.is_behind and not self._is_pumping:
            self._is_pumping = True
            pump = self._pump(is_resuming=is_resuming)
            self._context.tasks.spawn(pump, f"pump-{self.id}", self._close_failed)

    def _close_failed(self) -> None:
        """Close the session after a task failed. The client reconnects."""
        self.close(Close.OVERLOADED, "internal error; the session failed", 1000)

    async def _pump(self, *, is_resuming: bool) -> None:
        """Send inbox events until the device has all of them, no faster than the device reads.

        `is_resuming`: the events are older than the session and do not count as delivery latency.
        """
        cursor, sync = self.state.cursor, self._context.container.sync
        try:
            while cursor.is_behind and self._is_current(cursor):
                await self._connection.wait_for_room()
                head = cursor.head
                missed = await sync.list_missed(self.user, cursor.seq, PUMP_PAGE)
                if not self._is_current(cursor):
                    break
                if missed and not is_resuming:
                    self._context.counters.record_new_event(missed[0].body, len(missed))
                for event in missed:
                    await self._send_missed(cursor, event)
                    if is_resuming:
                        self._context.counters.pushed_before += 1
                if not missed and cursor.head == head:
                    cursor.head = cursor.seq  # `head` was from an earlier epoch
        except EventsLost:
            self._recover()
        except ChatError as exc:
            # Redis is down: `SessionRefresher.refresh` will compare the inbox seqs again.
            log.warning("session.pump_stopped", session=self.id, error=exc.message)
            cursor.head = cursor.seq
        finally:
            self._is_pumping = False

    def _is_current(self, cursor: DeviceCursor) -> bool:
        return self.state.is_current(cursor, self._context.container.hot.whole_epoch)

    async def _send_missed(self, cursor: DeviceCursor, event: Missed) -> None:
        """Send an inbox event; if it makes the chat large or small, switch how it is delivered."""
        transition = read_transition(event.body, self.user)
        if transition is not None and not transition.is_large:
            self._summaries.pop(transition.chat, None)
            await self._context.channels.finish(self, transition, event.seq)
        if self.state.stage is not LIVE or cursor is not self.state.cursor:
            return
        if self.state.handle_event(cursor.epoch, event.seq) is SEND:
            self._context.counters.pushed += 1
            self._connection.send_text(codec.join_event(cursor.epoch, event.seq, event.body))
            if transition is not None and transition.is_large:
                chat, since = transition.chat, transition.since
                await self._context.channels.begin(self, chat, since, event.seq)

    def go_live_and_recover(self) -> None:
        """Go live with an outdated position; a snapshot follows once the inbox is loaded."""
        self.go_live(self.state.cursor.seq)
        self._recover()

    def _recover(self) -> None:
        """Start the recovery task unless it is already running."""
        if not self._is_recovering:
            self._is_recovering = True
            self._context.tasks.spawn(
                self._run_recovery(), f"recovery-{self.id}", self._close_failed
            )

    async def _run_recovery(self) -> None:
        """Send snapshots until the device is in the hot tier's current epoch.

        Stops if Redis is down; the refresh of all sessions restarts it once Redis is up again.
        """
        wait_s = RETRY_S
        try:
            while self.state.stage is LIVE:
                try:
                    async with self._context.recoveries:
                        if not self.is_live:
                            return  # the session ended during the wait
                        await self._send_snapshot()
                    if self.epoch == self._context.container.hot.whole_epoch:
                        return
                    continue  # the epoch has changed again
                except ChatError as exc:
                    if wait_s == RETRY_S:
                        log.warning("session.snapshot_delayed", session=self.id, error=exc.message)
                if not self._context.container.hot.is_up:
                    return
                await asyncio.sleep(add_jitter(wait_s, 0.5, 1.5))
                wait_s = min(2 * wait_s, RETRY_S_MAX)
        finally:
            self._is_recovering = False

    async def _send_snapshot(self) -> None:
        """Send a snapshot and continue from its position.

        Raises:
            ChatError: a tier is down; the device's position is unchanged.
        """
        try:
            state = await self.publish_presence()
            if not state.is_known:
                raise Unavailable("the user's chats are not loaded yet")
            # Read the large-chat positions first: entries above them are sent after the snapshot.
            positions = await self._context.channels.open_for(self.user, state.head)
            coverage = Coverage.TOO_LONG if state.epoch == self.epoch else Coverage.RESET
            if not self.state.recover():
                return
            self._context.channels.detach(self)
            snapshot = await self._context.requests.get_snapshot(
                self.user, state, coverage, positions.large
            )
        except ChatError:
            if self.state.abandon():
                self._on_live()
            raise
        self.send_snapshot(snapshot, state)
        self.go_live(state.head)
        self.enter_large_chats(positions, is_loaded=state.is_known)

    def send_snapshot(self, snapshot: frames.TooLong | frames.Reset, state: InboxState) -> None:
        """Send a snapshot, and set the device's cursor to `state.head`, the newest inbox seq."""
        self._send(snapshot)
        self.state.snapshot(state.epoch, state.head)

    def _send(self, frame: msgspec.Struct) -> None:
        self._connection.send_text(codec.encode(frame))

    # close

    def apply_revocation(self, marks: RevocationMarks, reason: str) -> None:
        if self.auth is not None:
            self.auth.apply_revocation(marks, reason)

    def close(self, code: int, reason: str, retry_after_ms: int | None = None) -> None:
        """Send a `bye` frame with the reason, and close."""
        if self._connection.phase is not Phase.OPEN:
            return
        wait = msgspec.UNSET if retry_after_ms is None else retry_after_ms
        self._send(frames.Bye(int(code), reason, wait))
        self._connection.close(code, reason)
        self.end()

    def end(self) -> None:
        """End the session when its connection ends; pending responses are dropped."""
        is_first = self.state.close()
        if self.auth is not None:
            self.auth.end()
        if is_first:
            self._on_end(self)
        self._context.channels.detach(self)
