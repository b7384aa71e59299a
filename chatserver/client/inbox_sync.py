"""Inbox sync: requests the events that a device has missed, in pages. No I/O."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import msgspec

from chatserver.client.request_queue import Answer, Fields, SendRequest
from chatserver.errors import ChatError
from chatserver.protocol.frames import Cursor

RETRY_S = 1.0
SYNC_PAGE = 200


@attrs.define(eq=False, repr=False)
class InboxSync:
    """Requests one page of events at a time until the device has all events."""

    _send_request: SendRequest
    _handle_event: Callable[[Fields, float], None]
    _get_cursor: Callable[[], Cursor | None]
    is_behind: bool = False  # True if the device knows that it has missed events
    is_syncing: bool = False
    not_before: float = 0.0

    def request_page(self, now: float) -> None:
        """Request the next page if the device has missed events."""
        if not self.is_behind or self.is_syncing or self.not_before > now:
            return
        requested = self._get_cursor()
        assert requested is not None
        self.is_syncing = True
        self.is_behind = False  # `_handle_event` sets it again if events are missing

        def handle_answer(answer: Answer, when: float) -> None:
            self.is_syncing = False
            if isinstance(answer, ChatError):
                self.is_behind = True
                self.not_before = when + max(RETRY_S, (answer.retry_after_ms or 0) / 1000)
                return
            for event in answer["events"]:
                self._handle_event(event, when)
            self.is_behind = self.is_behind or answer["more"]
            if self._get_cursor() == requested:
                self.not_before = when + RETRY_S

        fields = {"type": "sync", "cursor": msgspec.to_builtins(requested), "limit": SYNC_PAGE}
        self._send_request(fields, handle_answer, now)
