"""Request dispatch: each frame with a request id gets one response or an error.

All sessions of a gateway share one `RequestDispatcher` instance. `send` is not handled here:
`chatserver.gateway.session.command_handler` submits it, and the commit sends the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chatserver.container.gateway import GatewayContainer
from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.cursor_coverage import Coverage
from chatserver.domain.ids import UserId
from chatserver.domain.inboxes import InboxState
from chatserver.protocol.frames import ClientFrame, LargeChat
from chatserver.requests.operation import Operation, Reply
from chatserver.requests.registry import get_operation, list_operations, make_call
from chatserver.requests.synchronization import Snapshot, read_snapshot


class RequestDispatcher:
    """Handles the request frames of one gateway's sessions."""

    def __init__(self, container: GatewayContainer) -> None:
        self._container = container
        list_operations()  # import all declarations before the first request

    async def handle(self, caller: RequestCaller, frame: ClientFrame) -> Reply:
        """Handle a request and return its response; None if the request has no response.

        Raises:
            ChatError: the request failed; the error is the response.
        """
        CALLER.set(caller)  # a context variable; other tasks keep their own value
        user = UserId(caller.user)
        operation = get_operation(frame)
        if operation.runs_in == "worker":
            return await self._forward_to_worker(user, frame, operation)
        assert operation.handler is not None, "the session handles its own frames"
        reply = await operation.handler(self._container, user, frame)
        if operation.charge is not None:
            self._container.limits.charge_memory(user, operation.charge(frame, reply))
        return reply

    async def _forward_to_worker(
        self, user: UserId, frame: ClientFrame, operation: Operation[Any]
    ) -> msgspec.Raw:
        """Let a worker handle the frame; return the encoded reply."""
        reply = await self._container.warm.forward_frame(
            make_call(user, frame), is_needed=operation.is_needed_when_full
        )
        if operation.charge is not None:
            added = operation.charge(frame, msgspec.json.decode(reply, type=operation.replies[0]))
            self._container.limits.charge_memory(user, added)
        return msgspec.Raw(reply)

    async def get_snapshot(
        self,
        user: UserId,
        state: InboxState,
        coverage: Coverage,
        large: Sequence[LargeChat] = (),
    ) -> Snapshot:
        """Return a snapshot for a device whose cursor is no longer valid."""
        return await read_snapshot(self._container, user, state, coverage, large=large)
