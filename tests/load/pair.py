"""Two users in a direct chat: one writes, the other receives, and both are watched."""

from __future__ import annotations

import json

from chatserver.loadtest import wire
from tests.load.connection import Tally
from tests.load.session import FIRST_NUMBER, Session


def body_for(chat: str, frame_bytes: int) -> str:
    """Return a body that makes the whole JSON of a `send` exactly `frame_bytes` long.

    Raises:
        ValueError: the frame without a body is longer already.
    """
    empty = _send_json(chat, str(FIRST_NUMBER), str(FIRST_NUMBER), "")
    room = frame_bytes - len(empty)
    if room < 1:
        raise ValueError(f"a send frame takes at least {len(empty) + 1} bytes")
    words = "the quick brown fox jumps over the lazy dog "
    return (words * (room // len(words) + 1))[:room]


def _send_json(chat: str, number: str, ref: str, body: str) -> bytes:
    return (
        f'{{"type":"send","id":{number},"chat":"{chat}","ref":"{ref}","body":{json.dumps(body)}}}'
    ).encode()


class Pair:
    """Sends numbered messages from one session and waits for them at the other.

    A message is done when its ack is at the sender and its event at the receiver. In a closed loop
    `window` messages are under way: each one that is done is followed by the next.
    """

    def __init__(self, sender: Session, receiver: Session, tally: Tally) -> None:
        self.sender = sender
        self.receiver = receiver
        self.sent = 0
        self.window = 0
        self.intended: list[float] = []  # of the open loop, since `start_recording`
        self.first_recorded = 0
        self._tally = tally
        self._form = b""

    def use_chat(self, chat: str, frame_bytes: int) -> None:
        """Fix the chat and build the frame of which only the number changes."""
        body = body_for(chat, frame_bytes)
        payload = _send_json(chat, "{number}", "{number}", body)
        # The frame's head depends on the final length: take it from a frame of that length.
        sized = wire.client_frame(_send_json(chat, str(FIRST_NUMBER), str(FIRST_NUMBER), body))
        head = sized[: len(sized) - frame_bytes]
        self._form = (head + payload).replace(b"%", b"%%").replace(b"{number}", b"%d")
        self.sender.expect(chat, self.sender.user, body)
        self.receiver.expect(chat, self.sender.user, body)

    @property
    def done(self) -> int:
        """Messages acked and delivered."""
        return min(self.sender.acked, self.receiver.evented)

    @property
    def is_quiet(self) -> bool:
        """Nothing is under way; the sender's own event has come too."""
        return self.sent == self.sender.acked == self.receiver.evented == self.sender.evented

    def start_window(self, window: int) -> None:
        """Begin the closed loop."""
        self.window = window
        self.sender.on_progress = self.receiver.on_progress = self.refill
        self.refill()

    def stop_window(self) -> None:
        self.sender.on_progress = self.receiver.on_progress = None

    def refill(self) -> None:
        """Send as many as were done since, in one write."""
        acked, delivered = self.sender.acked, self.receiver.evented
        upto = (acked if acked < delivered else delivered) + self.window
        sent = self.sent
        if upto <= sent:
            return
        form = self._form
        if upto == sent + 1:
            number = FIRST_NUMBER + sent
            self.sender.transport.write(form % (number, number))
        else:
            numbers = range(FIRST_NUMBER + sent, FIRST_NUMBER + upto)
            self.sender.transport.write(b"".join([form % (n, n) for n in numbers]))
        self.sent = upto

    def start_recording(self) -> None:
        """Begin the open loop: from here on times are kept."""
        self.first_recorded = self.sent
        self.intended = []
        for session in (self.sender, self.receiver):
            session.ack_at, session.event_at = [], []
            session.is_recording = True

    def stop_recording(self) -> None:
        self.sender.is_recording = self.receiver.is_recording = False

    def send_one(self, intended: float) -> None:
        """Send a message that was meant to go at `intended`."""
        self.intended.append(intended)
        number = FIRST_NUMBER + self.sent
        self.sent += 1
        self.sender.transport.write(self._form % (number, number))

    def note_missing(self) -> None:
        """Report what was sent and did not come."""
        for what, count in (
            ("ack", self.sender.acked),
            ("event at the receiver", self.receiver.evented),
            ("event at the sender", self.sender.evented),
        ):
            if count < self.sent:
                text = f"{self.sender.user}: {self.sent - count} of {self.sent}: no {what}"
                self._tally.note("lost", text)

    def close(self) -> None:
        """End both sessions."""
        self.sender.close()
        self.receiver.close()
