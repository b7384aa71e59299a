"""Session state shared by `session` and `command_handler`."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    """Stage of a session's lifecycle."""

    NEW = "new"  # waits for hello
    OPENING = "opening"  # hello or a snapshot is in progress
    LIVE = "live"
    OVER = "over"


class SessionState:
    """State of one session."""

    __slots__ = ("asked", "is_held", "is_welcomed", "sending", "stage")

    def __init__(self) -> None:
        self.stage = Stage.NEW
        self.is_welcomed = False  # `welcome` has been sent
        self.is_held = False  # client frames are held
        self.sending = 0  # sends without an ack
        self.asked = 0  # other requests without an answer

    @property
    def is_live(self) -> bool:
        """True from the accepted hello until the end."""
        return self.stage in (Stage.OPENING, Stage.LIVE)
