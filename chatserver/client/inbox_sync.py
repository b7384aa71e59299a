"""Inbox sync: requests the events that a device has missed, in pages. No I/O."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chatserver.client.catch_up import SendRequest
from chatserver.client.request_queue import Fields
from chatserver.errors import ChatError
from chatserver.protocol.frames import Cursor

RETRY_S = 1.0
SYNC_PAGE = 200


class InboxSync:
    """Requests one page of events at a time until the device has all events."""

    def __init__(
        self,
        ask: SendRequest,
        take_event: Callable[[Fields, float], None],
        get_cursor: Callable[[], Cursor | None],
    ) -> None:
        self._send_request = ask
        self._handle_event = take_event
        self._get_cursor = get_cursor
        self.is_behind = False  # True if the device knows that it has missed events
        self.is_syncing = False
        self.not_before = 0.0

    def request_page(self, now: float) -> None:
        """Request the next page if the device has missed events."""
        if not self.is_behind or self.is_syncing or self.not_before > now:
            return
        requested = self._get_cursor()
        assert requested is not None
        self.is_syncing = True
        self.is_behind = False  # `_handle_event` sets it again if events are missing

        def handle_page(page: Fields, when: float) -> None:
            self.is_syncing = False
            for event in page["events"]:
                self._handle_event(event, when)
            self.is_behind = self.is_behind or page["more"]
            if self._get_cursor() == requested:
                self.not_before = when + RETRY_S

        def handle_error(error: ChatError, when: float) -> None:
            self.is_syncing = False
            self.is_behind = True
            self.not_before = when + max(RETRY_S, (error.retry_after_ms or 0) / 1000)

        fields = {"type": "sync", "cursor": msgspec.to_builtins(requested), "limit": SYNC_PAGE}
        self._send_request(fields, handle_page, handle_error, now)
