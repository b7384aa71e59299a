"""Session of one connected device: event delivery, recovery and close.

A session sends each event once and in order (promise P4). `DeviceCursor` decides which events may
be sent. The pump fills gaps from the inbox, which also serves devices that reconnect. Client
frames are handled by `chatserver.gateway.session.command_handler`; both share only the
`SessionState` object. The session closes the connection only when it can no longer serve it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec
import structlog

from chatserver.domain.access.logins import Marks
from chatserver.domain.ids import (
    ChatId,
    DeviceId,
    Epoch,
    Seq,
    SessionId,
    UserId,
    new_id,
)
from chatserver.domain.inbox_cursors import Coverage, DeviceCursor, Verdict
from chatserver.domain.inboxes import InboxState
from chatserver.domain.jitter import jittered
from chatserver.domain.presence import SessionActivity
from chatserver.errors import ChatError, NotFound, Unavailable
from chatserver.gateway.delivery.large_chat import ChannelPlace, Entry, read_turn
from chatserver.gateway.session.session_auth import SessionAuth
from chatserver.gateway.session.session_context import SessionContext
from chatserver.gateway.session.session_state import SessionState, Stage
from chatserver.gateway.transport.connection import Connection, Phase
from chatserver.gateway.transport.framing import text_frame
from chatserver.protocol import codec, frames
from chatserver.protocol.codes import Close
from chatserver.service.history.sync import EventsLost, Missed

log = structlog.get_logger()

PUMP_PAGE = 200
RETRY_S, RETRY_S_MAX = 1.0, 8.0  # backoff for snapshots and chat summaries while a tier is down
SEND, LIVE = Verdict.SEND, Stage.LIVE  # looked up once: the comparisons run for every push


class Session:
    """Session of one device. Created with its connection; ends with it."""

    __slots__ = (
        "_connection",
        "_cursor",
        "_desk",
        "_is_loading",
        "_is_pumping",
        "_is_recovering",
        "_lines",
        "_seen_head",
        "_unreported",
        "attention",
        "device",
        "id",
        "life",
        "on_live",
        "standing",
        "started_ms",
        "user",
    )

    def __init__(self, desk: SessionContext, connection: Connection) -> None:
        self._desk = desk
        self._connection = connection
        self._cursor = DeviceCursor(Epoch(""), Seq(0))
        self._seen_head = 0
        self._is_pumping = self._is_recovering = self._is_loading = False
        # Large chats whose summary is being read, each with the token of its task.
        self._lines: dict[ChatId, object] = {}
        # The seq up to which the device waits for `stored`, by epoch and chat.
        self._unreported: dict[tuple[Epoch, ChatId], Seq] = {}
        self.life = SessionState()
        self.on_live: Callable[[], None] = lambda: None  # resumes held frames
        self.standing: SessionAuth | None = None  # set after an accepted hello
        self.started_ms = 0
        self.attention: SessionActivity
        self.id = SessionId(new_id())
        self.user = UserId("")
        self.device = DeviceId("")

    @property
    def is_busy(self) -> bool:
        """True while a client request is unanswered."""
        return self.life.sending > 0 or self.life.asked > 0

    @property
    def is_live(self) -> bool:
        """True from the accepted hello until the end."""
        return self.life.is_live

    @property
    def epoch(self) -> Epoch:
        """The epoch of the device's cursor."""
        return self._cursor.epoch

    @property
    def awaits_reset(self) -> bool:
        """True while the device's epoch is outdated and its `reset` has not been sent."""
        return self._cursor.epoch != self._desk.parts.hot.whole_epoch

    # start

    async def announce(self) -> InboxState:
        """Announce the user's presence and return the inbox state, loaded if needed.

        Raises:
            Unavailable: Redis does not answer.
        """
        parts = self._desk.parts
        (state,) = await parts.presence.announce([self.user])
        if not state.is_known:
            try:
                await parts.warm.load_user(self.user)
            except Unavailable as exc:
                # The hot tier alone can serve the session (promise P9); the next hello retries.
                log.warning("session.user_not_loaded", user=self.user, error=exc.message)
            # Either way time has passed, and the inbox may have grown.
            (state,) = await parts.presence.announce([self.user])
        return state

    def enter(self, entry: Entry, *, is_loaded: bool) -> None:
        """Enter the large chats; `is_loaded` means that the list of chats was complete."""
        if self.life.stage is not LIVE:
            return
        if self._is_current(self._cursor):
            self._desk.channels.enter(self, entry)
        else:
            self._recover()  # the epoch ended while `entry` was read
        if not is_loaded and not self._is_loading:
            self._is_loading = True
            self._desk.spawn(self._load_later(), f"load-{self.id}")

    async def _load_later(self) -> None:
        """Find the large chats of a user whose data could not be loaded from the warm tier."""
        entry: Entry | None = None
        while entry is None and self.life.stage is not Stage.OVER:
            await asyncio.sleep(jittered(2.0, 0.5, 1.5))
            with contextlib.suppress(ChatError):
                if (await self.announce()).is_known:
                    entry = await self._desk.channels.open_for(self.user, self._cursor.seq)
        self._is_loading = False
        for place in entry.places if entry is not None else ():
            self.missed_too_much(place.channel.chat)

    def go_live(self, epoch: Epoch, seq: Seq, head: Seq) -> None:
        """Send the inbox events above `seq` up to `head`, and resume held frames."""
        if self.life.stage is Stage.OVER:
            return
        # Pushes that arrived while the session was opening are not lost: the pump reads them.
        self._cursor = DeviceCursor(epoch, seq, Seq(max(head, self._seen_head)))
        self._seen_head = 0
        self.life.stage = LIVE
        self._pump_if_behind(is_resuming=True)
        self.on_live()

    # events

    def push(self, epoch: Epoch, seq: Seq, parts: tuple[bytes, ...], size: int) -> None:
        """Send event `seq` if it is the next one for this device; `parts` make up its frame."""
        if self.life.stage is not LIVE:
            self._seen_head = max(self._seen_head, seq)
            return
        verdict = self._cursor.offer(epoch, seq)
        if verdict is SEND:
            self._desk.tally.pushed += 1
            self._connection.send_parts(parts, size)
        elif verdict is Verdict.GAP:
            self._pump_if_behind()

    def send_frame(self, frame: bytes) -> None:
        """Send the encoded frame of a large-chat entry."""
        if self.life.stage is LIVE:
            self._desk.tally.pushed += 1
            self._connection.send_frame(frame)

    def nudge(self, seq: Seq) -> None:
        """Read the inbox after it has grown to `seq`."""
        if self.life.stage is not LIVE:
            self._seen_head = max(self._seen_head, seq)
        elif seq > self._cursor.head:
            self._cursor.head = seq
            self._pump_if_behind()

    def compare(self, state: InboxState) -> None:
        """Compare with the current inbox state, to detect lost pushes or a new epoch."""
        if self.life.stage is not LIVE:
            return
        if state.epoch == self._cursor.epoch:
            self.nudge(state.head)
        else:
            self._recover()

    def signal(self, frame: bytes) -> None:
        """Send a signal, unless the peer is slow."""
        if self.life.stage is LIVE and not self._connection.is_slow:
            self._connection.send_text(frame)

    def stored(self, frame: bytes) -> None:
        """Send a chat's stored position in the hot tier's current epoch.

        A device still in the previous epoch interprets seqs of that epoch. If it received the
        report now, it would drop messages that are lost.
        """
        epoch = self._desk.parts.hot.whole_epoch
        if self.life.is_live and self._cursor.epoch == epoch:
            self._connection.send_frame(frame)

    def report_stored(self, unstored: Mapping[str, int]) -> None:
        """Send the stored positions of these chats: now, and when each given seq is stored."""
        epoch, is_reporting = self._cursor.epoch, bool(self._unreported)
        for chat, seq in unstored.items():
            key = epoch, ChatId(chat)
            self._unreported[key] = Seq(max(seq, self._unreported.get(key, 0)))
        if self._unreported and not is_reporting:
            self._desk.spawn(self._report_stored(), f"stored-{self.id}", self._unreported.clear)

    async def _report_stored(self) -> None:
        """Report one chat after the other; retry while a tier is down."""
        wait_s = RETRY_S
        while self._unreported and self.life.stage is not Stage.OVER:
            key = epoch, chat = next(iter(self._unreported))
            try:
                reader = await self._desk.parts.members.get_reader(chat, self.user)
            except NotFound:
                self._unreported.pop(key)
                continue
            except ChatError as exc:
                if wait_s == RETRY_S:
                    log.warning("session.stored_delayed", chat=chat, error=exc.message)
                await asyncio.sleep(jittered(wait_s, 0.5, 1.5))
                wait_s = min(2 * wait_s, RETRY_S_MAX)
                self._unreported[key] = self._unreported.pop(key)  # retry after the other chats
                continue
            seq = Seq(min(self._unreported.pop(key), reader.head))
            if self._cursor.epoch != epoch:
                continue  # its seqs may be other messages now
            if reader.stored:
                self.stored(text_frame(codec.encode(frames.Stored(chat, reader.stored))))
            if reader.stored < seq:
                self._wait_for_stored(chat, seq, epoch)

    def _wait_for_stored(self, chat: ChatId, seq: Seq, epoch: Epoch) -> None:
        """Send `stored` once the chat is stored up to `seq`, during this session and epoch."""

        def on_stored() -> None:
            if self._cursor.epoch == epoch:
                self.stored(text_frame(codec.encode(frames.Stored(chat, seq))))

        def on_timeout() -> None:
            if self.life.stage is not Stage.OVER and self._desk.parts.hot.whole_epoch == epoch:
                self._wait_for_stored(chat, seq, epoch)

        if not self._desk.stored.add(chat, seq, on_stored, on_timeout):
            log.warning("session.stored_unknown", chat=chat, error="too many waits")

    async def wait_for_room(self) -> None:
        """Wait until the send queue has room."""
        await self._connection.wait_for_room()

    def missed_too_much(self, chat: ChatId) -> None:
        """Send the chat's summary after log entries were trimmed; the device pages history."""
        if self.life.stage is LIVE and not self._is_current(self._cursor):
            self._recover()  # the snapshot has the summary of every chat
        elif chat not in self._lines:
            task = self._lines[chat] = object()
            self._desk.spawn(self._send_line(chat, task), f"line-{self.id}")

    async def _send_line(self, chat: ChatId, task: object) -> None:
        """Send the chat's summary and everything after it.

        Guarantees:
            One task per chat: `_lines` holds the chat until its summary is read.
            Epoch: nothing from another epoch is sent; a `reset` or `too_long` sent meanwhile
                replaces the summary.
            End: when the inbox reaches the end of the chat as a large chat, or the user's removal,
                the chat is removed from `_lines` and the summary is not sent.
        """
        cursor = self._cursor
        try:
            found, line = await self._read_line(chat, cursor)
        finally:
            is_wanted = self._lines.get(chat) is task
            if is_wanted:
                del self._lines[chat]
        if line is not None and is_wanted and self._is_current(cursor):
            large = [] if found is None else [frames.LargeChat(chat, found.after)]
            place = frames.Cursor(cursor.epoch, cursor.seq)
            self._answer(frames.TooLong(place, [line], large=large))
            if found is not None:
                self._desk.channels.attach(self, found)

    async def _read_line(
        self, chat: ChatId, cursor: DeviceCursor
    ) -> tuple[ChannelPlace | None, frames.ChatSummary | None]:
        """Return the chat's position and summary; retry while a tier is down and `cursor` is valid.

        Both are None once `cursor` is no longer current.
        """
        wait_s = RETRY_S
        while self._is_current(cursor):
            try:
                found = await self._desk.channels.find_again(self, chat)
                # Read second: if the user is a member now, only a later entry can remove them.
                return found, await self._desk.parts.chats.get_summary(self.user, chat)
            except ChatError as exc:
                if wait_s == RETRY_S:
                    log.warning("session.line_delayed", session=self.id, error=exc.message)
            await asyncio.sleep(jittered(wait_s, 0.5, 1.5))
            wait_s = min(2 * wait_s, RETRY_S_MAX)
        return None, None

    def _pump_if_behind(self, *, is_resuming: bool = False) -> None:
        if self._cursor.is_behind and not self._is_pumping:
            self._is_pumping = True
            pump = self._pump(is_resuming=is_resuming)
            self._desk.spawn(pump, f"pump-{self.id}", self._crashed)

    def _crashed(self) -> None:
        """Close the session after a failed task, because only a reconnect can restore delivery."""
        self.bye(Close.OVERLOADED, "the session failed; it is our fault", 1000)

    async def _pump(self, *, is_resuming: bool) -> None:
        """Send inbox events until the device has all of them, no faster than the device reads.

        `is_resuming`: the events arrived while the device was disconnected, so they are excluded
        from the delivery latency.
        """
        cursor = self._cursor
        try:
            while cursor.is_behind and self._is_current(cursor):
                await self._connection.wait_for_room()
                head = cursor.head
                missed = await self._desk.parts.sync.list_missed(self.user, cursor.seq, PUMP_PAGE)
                if not self._is_current(cursor):
                    break
                if missed and not is_resuming:
                    self._desk.tally.note_fresh(missed[0].body, len(missed))
                for event in missed:
                    await self._send_missed(cursor, event)
                    if is_resuming:
                        self._desk.tally.noted += 1
                if not missed and cursor.head == head:
                    cursor.head = cursor.seq  # the higher head was from another epoch
        except EventsLost:
            self._recover()
        except ChatError as exc:
            # Redis is down: the next refresh compares again.
            log.warning("session.pump_stopped", session=self.id, error=exc.message)
            cursor.head = cursor.seq
        finally:
            self._is_pumping = False

    def _is_current(self, cursor: DeviceCursor) -> bool:
        """Return whether `cursor` is the device's cursor and belongs to the hot tier's epoch.

        In another epoch, the inbox has other events at the same seqs: the device must start over.
        """
        return (
            self.life.stage is LIVE
            and cursor is self._cursor
            and cursor.epoch == self._desk.parts.hot.whole_epoch
        )

    async def _send_missed(self, cursor: DeviceCursor, event: Missed) -> None:
        """Send an inbox event; a large-chat transition also switches the chat's delivery path."""
        turn = read_turn(event.body, self.user)
        if turn is not None and not turn.is_large:
            self._lines.pop(turn.chat, None)
            await self._desk.channels.finish(self, turn, event.seq)
        if self.life.stage is not LIVE or cursor is not self._cursor:
            return
        if cursor.offer(cursor.epoch, event.seq) is Verdict.SEND:
            self._desk.tally.pushed += 1
            self._connection.send_text(codec.join_event(cursor.epoch, event.seq, event.body))
            if turn is not None and turn.is_large:
                await self._desk.channels.begin(self, turn.chat, turn.since, event.seq)

    def recover_from(self, epoch: Epoch, seq: Seq) -> None:
        """Go live at an outdated position, and send a snapshot once the inbox is loaded."""
        self.go_live(epoch, seq, seq)
        self._recover()

    def _recover(self) -> None:
        """Start the recovery task unless it is already running."""
        if not self._is_recovering:
            self._is_recovering = True
            self._desk.spawn(self._run_recovery(), f"recovery-{self.id}", self._crashed)

    async def _run_recovery(self) -> None:
        """Send snapshots until the device is in the hot tier's current epoch.

        Stops while Redis is down; when Redis is back, every session is compared again.
        """
        wait_s = RETRY_S
        try:
            while self.life.stage is LIVE:
                try:
                    await self._send_snapshot()
                    if self._cursor.epoch == self._desk.parts.hot.whole_epoch:
                        return
                    continue  # it changed meanwhile
                except ChatError as exc:
                    if wait_s == RETRY_S:
                        log.warning("session.snapshot_delayed", session=self.id, error=exc.message)
                if not self._desk.parts.hot.is_up:
                    return
                await asyncio.sleep(jittered(wait_s, 0.5, 1.5))
                wait_s = min(2 * wait_s, RETRY_S_MAX)
        finally:
            self._is_recovering = False

    async def _send_snapshot(self) -> None:
        """Send a snapshot and continue from it.

        Raises:
            ChatError: a tier is down; the cursor has not moved, so nothing from another epoch can
                be sent meanwhile.
        """
        before = self._cursor
        try:
            state = await self.announce()
            if not state.is_known:
                raise Unavailable("the user's chats are not loaded yet")
            # Opened first: events that arrive while the snapshot is read are sent after it.
            entry = await self._desk.channels.open_for(self.user, state.head)
            self.life.stage, self._seen_head, self.life.is_held = Stage.OPENING, 0, True
            self._desk.channels.detach(self)
            coverage = Coverage.TOO_LONG if state.epoch == before.epoch else Coverage.RESET
            self._answer(
                await self._desk.requests.get_snapshot(
                    self.user, state, coverage, None, entry.large
                )
            )
        except ChatError:
            self._seen_head = 0
            self.go_live(before.epoch, before.seq, before.seq)
            raise
        self.go_live(state.epoch, state.head, state.head)
        self.enter(entry, is_loaded=state.is_known)

    def _answer(self, frame: msgspec.Struct) -> None:
        self._connection.send_text(codec.encode(frame))

    # close

    def token_ended(self) -> None:
        """Close the session because its token has expired."""
        self.bye(Close.UNAUTHENTICATED, "the token has expired: log in again")

    def revoked(self, marks: Marks, reason: str) -> None:
        """Close the session if a revocation of the user's logins covers its token."""
        if self.standing is not None:
            self.standing.judge(marks, reason)

    def bye(self, code: int, reason: str, retry_after_ms: int | None = None) -> None:
        """Send a `bye` frame with the reason, and close."""
        if self._connection.phase is not Phase.OPEN:
            return
        wait = msgspec.UNSET if retry_after_ms is None else retry_after_ms
        self._answer(frames.Bye(int(code), reason, wait))
        self._connection.close(code, reason)
        self.lost()

    def lost(self) -> None:
        """End the session with its connection; pending responses are dropped."""
        was_live, self.life.stage = self.is_live, Stage.OVER
        if self.standing is not None:
            self.standing.over()
        if was_live and self._desk.places.leave(self):
            self._desk.left(self.user)
        self._desk.channels.detach(self)
