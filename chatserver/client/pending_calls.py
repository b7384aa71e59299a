"""Application calls that wait for a response or an ack."""

from __future__ import annotations

import asyncio
import collections
from typing import Any

from chatserver.client.events import Acked, Event, Refused
from chatserver.client.request_queue import Fields
from chatserver.errors import ChatError, Unavailable
from chatserver.task_groups import wait_for_shared


class PendingCalls:
    """One future for each request number and each `ref` that a call waits for."""

    def __init__(self) -> None:
        self._responses: dict[int, asyncio.Future[Fields]] = {}
        self._requests: dict[int, Fields] = {}  # the requests of these futures
        self._acks: dict[str, asyncio.Future[Acked]] = {}
        self._callers: collections.Counter[str] = collections.Counter()  # waiting callers per ref

    def open_request(self, number: int, fields: Fields) -> asyncio.Future[Fields]:
        """Return a future for the response to a request. Call `close_request` when done."""
        future = self._responses[number] = asyncio.get_running_loop().create_future()
        self._requests[number] = fields
        return future

    def close_request(self, number: int) -> None:
        self._responses.pop(number, None)
        self._requests.pop(number, None)

    def resolve_request(self, number: int, response: Fields | ChatError) -> None:
        """Resolve the call that waits for this response, if there is one."""
        future = self._responses.pop(number, None)
        if future is not None and not future.done():
            if isinstance(response, ChatError):
                future.set_exception(response)
            else:
                future.set_result(response)

    def pop_request(self, number: int) -> Fields | None:
        return self._requests.pop(number, None)

    def resolve_ack(self, event: Event) -> bool:
        """Resolve the call that waits for this event; return whether there is one."""
        if not isinstance(event, Acked | Refused):
            return False
        future = self._acks.pop(event.ref, None)
        if future is None or future.done():
            return False
        if isinstance(event, Acked):
            future.set_result(event)
        else:
            future.set_exception(event.error)
        return self._callers[event.ref] > 0

    async def wait_for_ack(self, ref: str, deadline_s: float) -> Acked:
        """Wait until the operation with this `ref` is acked.

        Raises:
            ChatError: the operation was refused.
            Unavailable: no ack within `deadline_s`.
        """
        future = self._acks.get(ref)
        if future is None:
            future = self._acks[ref] = asyncio.get_running_loop().create_future()
        self._callers[ref] += 1
        try:
            async with asyncio.timeout(deadline_s):
                return await wait_for_shared(future)
        except TimeoutError:
            reason = f"no ack within {deadline_s:g} s; the message stays in the outbox"
            raise Unavailable(reason) from None
        finally:
            self._callers[ref] -= 1
            if not self._callers[ref]:
                del self._callers[ref]

    def fail_all(self, failure: Exception) -> None:
        futures: list[asyncio.Future[Any]] = [*self._responses.values(), *self._acks.values()]
        for future in futures:
            if not future.done():
                future.set_exception(failure)
                future.exception()  # marks it as retrieved, so that asyncio does not log it
