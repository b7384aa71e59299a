"""View model of one direct chat: the lines to show, from the state and events of a `ChatClient`.

Invariants: a message is shown once, at its seq. Messages without a seq are shown last: refused
ones, then unacked ones, then drafts.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Sequence

import msgspec

from chatserver.client import events
from chatserver.client.calls import HistoryPage
from chatserver.client.chat import Chat
from chatserver.client.outbox import OutboxEntry, OutboxStage
from chatserver.protocol.frames import Attachment


class Mark(enum.Enum):
    """The delivery status of a message that the user sent."""

    SENDING = "sending"
    SENT = "sent"  # committed: it will not be lost
    STORED = "stored"  # in DynamoDB
    READ = "read"
    FAILED = "failed"


class ConversationLine(msgspec.Struct, frozen=True):
    """A message to show.

    `mark` and `note` are set only for the user's own messages; `note` is the reason why one
    failed. `ts` is None before the ack.
    """

    sender: str
    body: str
    ts: int | None
    mark: Mark | None = None
    note: str = ""


class Conversation:
    """The direct chat with `peer`, as one device of `user` sees it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.user = ""
        self.chat: Chat | None = None
        self.is_peer_typing = False
        self.has_older = False
        self._operations: Callable[[], Sequence[OutboxEntry]] = list
        self._drafts: list[str] = []  # messages that the user wrote before the chat was loaded
        self._failed: list[ConversationLine] = []
        self._bodies: dict[str, str] = {}  # ref → body, until the message is acked or refused
        self._stored_upto = 0

    @property
    def top(self) -> int:
        """The newest known seq, 0 if there is none."""
        return 0 if self.chat is None else self.chat.log.shown or 0

    @property
    def bottom(self) -> int:
        """The oldest known seq, 0 if there is none."""
        return 0 if self.chat is None else self.chat.log.bottom

    @property
    def is_all_acked(self) -> bool:
        waiting = [
            operation
            for operation in self._operations()
            if operation.stage is not OutboxStage.ACKED
        ]
        return not self._drafts and not waiting

    def add_draft(self, body: str) -> None:
        """Store a message that cannot be sent yet."""
        self._drafts.append(body)

    def set_chat(
        self, user: str, chat: Chat, operations: Callable[[], Sequence[OutboxEntry]]
    ) -> list[str]:
        """Set the chat and the function that lists its pending operations; return the drafts."""
        self.user, self.chat, self._operations = user, chat, operations
        drafts, self._drafts = self._drafts, []
        return drafts

    def record_sent(self, ref: str, body: str) -> None:
        self._bodies[ref] = body

    def apply_event(self, event: events.Event) -> None:
        """Apply an event; events of other chats are ignored."""
        name = None if self.chat is None else self.chat.id
        match event:
            case events.MessageAdded(chat, message) if chat == name:
                if message.sender == self.peer:
                    self.is_peer_typing = False
            case events.SignalReceived("typing", sender, chat, fields) if chat == name:
                if sender == self.peer:
                    self.is_peer_typing = bool(fields.get("on"))
            case events.Acked(ref, chat, seq, durability=durability) if chat == name:
                self._bodies.pop(ref, None)
                if durability == "stored":
                    self._stored_upto = max(self._stored_upto, seq)
            case events.StoredUpto(chat, seq) if chat == name:
                self._stored_upto = max(self._stored_upto, seq)
            case events.Restarted(is_new_epoch=True):
                self._stored_upto = 0  # a new epoch can assign these seqs to other messages
            case events.Refused(ref, chat, error) if chat == name and ref in self._bodies:
                body = self._bodies.pop(ref)
                self._failed.append(
                    ConversationLine(self.user, body, None, Mark.FAILED, error.message)
                )
            case _:
                pass

    def apply_page(self, page: HistoryPage) -> None:
        """Record a page of history: the newest page, or the page before `bottom`."""
        self.has_older = page.has_more
        if page.tier != "hot" and page.entries:
            self._stored_upto = max(self._stored_upto, page.entries[0].seq)

    def build_lines(self, now_s: float | None = None) -> list[ConversationLine]:
        """Return the lines to show, oldest first; messages without a seq come last."""
        placed: dict[int, ConversationLine] = {}
        waiting: list[ConversationLine] = []
        for operation in self._operations():
            if operation.fields["type"] != "send":
                continue
            body = operation.fields["body"] or "[file]"
            if operation.stage is OutboxStage.ACKED:  # show it even before its event arrives
                placed[operation.seq] = ConversationLine(
                    self.user, body, operation.ts, self._get_mark(operation.seq)
                )
            else:
                waiting.append(ConversationLine(self.user, body, None, Mark.SENDING))
        for message in [] if self.chat is None else self.chat.log.messages(now_s):
            if not message.deleted:
                mark = self._get_mark(message.seq) if message.sender == self.user else None
                body = " ".join(filter(None, [message.body, *map(_describe, message.attachments)]))
                placed[message.seq] = ConversationLine(message.sender, body, message.ts, mark)
            else:
                placed.pop(message.seq, None)
        drafts = [ConversationLine(self.user, body, None, Mark.SENDING) for body in self._drafts]
        return [line for _, line in sorted(placed.items())] + self._failed + waiting + drafts

    def _get_mark(self, seq: int) -> Mark:
        peer = None if self.chat is None else self.chat.marks.get(self.peer)
        if peer is not None and seq <= peer.read:
            return Mark.READ
        return Mark.STORED if seq <= self._stored_upto else Mark.SENT


def _describe(file: Attachment) -> str:
    return f"[{file.name}, {file.size:,} bytes]"


def format_local_time(ts: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """Format a Unix time in microseconds as local date and time."""
    return datetime.datetime.fromtimestamp(ts / 1e6, tz=datetime.UTC).astimezone().strftime(form)
