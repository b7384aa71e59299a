"""How far a session is: what its two halves, `session` and `talk`, share."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    """How far a session is."""

    NEW = "new"  # waits for hello
    OPENING = "opening"  # hello is being answered, or a snapshot on its way
    LIVE = "live"
    OVER = "over"


class Life:
    """Of one session."""

    __slots__ = ("asked", "is_held", "is_welcomed", "sending", "stage")

    def __init__(self) -> None:
        self.stage = Stage.NEW
        self.is_welcomed = False  # `hello` is answered
        self.is_held = False  # what the client says waits
        self.sending = 0  # sends without an ack
        self.asked = 0  # other requests without an answer

    @property
    def is_live(self) -> bool:
        """True from a good hello until the end."""
        return self.stage in (Stage.OPENING, Stage.LIVE)
