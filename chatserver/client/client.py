"""`ChatClient`: an auto-reconnecting client for one device, which does the I/O for `ClientState`.

`ClientState` makes all decisions; this module owns sockets, clocks, futures, tasks and the event
queue.
"""

from __future__ import annotations

import asyncio
import secrets
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, overload

from chatserver.client.cache.local_store import LocalStore
from chatserver.client.cache.revalidation import revalidate
from chatserver.client.calls import Calls, HistoryPage
from chatserver.client.cleared_chats import ClearedChats, load_cleared_chats
from chatserver.client.client_state import ANSWER_S, ClientState, QueuedEvent
from chatserver.client.event_queue import EventQueue
from chatserver.client.events import Acked, Disconnected, Event
from chatserver.client.http.http_api import HttpApi
from chatserver.client.http.http_calls import HttpCalls
from chatserver.client.model import Bounds
from chatserver.client.outbox import OutboxEntry, OutboxStage
from chatserver.client.pending_calls import PendingCalls
from chatserver.client.reconnect_policy import ReconnectPolicy
from chatserver.client.request_queue import Fields
from chatserver.client.socket import ConnectionLost, Socket, open_socket
from chatserver.client.state_store import Store
from chatserver.client.token_renewal import RETRY_S, find_user, get_renewal_delay_s
from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import (
    ChatError,
    Conflict,
    Overloaded,
    Unavailable,
)
from chatserver.protocol.frames import ChatPreferences

WELCOME_S = 10.0
NO_GATEWAY = "cannot connect to a gateway"  # start of the error message

GetToken = Callable[[], Awaitable[str]]
AnyEvent = TypeVar("AnyEvent", bound=Event)
_spread = secrets.SystemRandom()


class ChatClient(HttpCalls, Calls):
    """A chat client for one device. See docs/sdk.md. Use it as an async context manager.

    Guarantees:
        Each event is delivered once and in order while the client is open. With a store, a client
        opened later continues after the last event. After a crash, the most recent events may be
        delivered again; none is missed.
        With a `SqliteStore`, messages and chats are cached; see its docstring.
        A sent operation stays in the outbox, under the same `ref`, until the server has stored it.
        Cancellation of a call: safe; the operation is still sent.
    """

    def __init__(
        self,
        url: str,
        token: str | GetToken,
        *,
        device: str | None = None,
        store: Store | None = None,
        bounds: Bounds | None = None,
        open_s: float = 10.0,
        is_patient: bool = True,
        clock: Clock | None = None,
        api_url: str | None = None,
        is_offline_first: bool = False,
    ) -> None:
        """Create a client. `api_url`: address of the HTTP API, for files, pins and `social`.

        `is_offline_first`: if the store knows the user, open without a connection, and connect in
        the background for as long as it takes.
        """
        self._api = None if api_url is None else HttpApi(api_url, self._get_token)
        self._state = ClientState(device or f"sdk-{secrets.token_hex(6)}", bounds)
        self._has_device = device is not None
        self._url = url
        self._token = token
        self._open_s = open_s
        self._is_offline_first = is_offline_first
        # If False, `__aenter__` raises when the first connection fails.
        self._is_patient = is_patient or is_offline_first
        self._clock = clock or SystemClock()
        server = urllib.parse.urlsplit(url).netloc
        self._local = None if store is None else LocalStore(store, self._state, self._clock, server)
        self._reconnects = ReconnectPolicy(_spread.uniform)
        self._events = EventQueue(self._state.bounds.events_max)
        self._events_ready = asyncio.Event()
        self._pending = PendingCalls()
        self._cleared = ClearedChats(self._state, self._local, self._push_events)
        self._outgoing: list[Fields] = []
        self._wake = asyncio.Event()
        self._has_new_operations = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._first_welcome: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._disconnect_reason = ""
        self._activity = "fg"

    async def __aenter__(self) -> ChatClient:
        """Load the store and connect.

        Raises:
            Conflict: the store belongs to another user or server, or another process uses it.
            Unauthenticated: the token is rejected.
            Unavailable: no gateway responded within `open_s`.
            ChatError: a permanent failure; the message states the cause.
        """
        try:
            await self._open()
        except BaseException:
            await self._stop()
            if self._local is not None:
                await self._local.close()
            raise
        return self

    async def _open(self) -> None:
        if self._local is not None:
            await self._load(self._local)
        self._first_welcome = asyncio.get_running_loop().create_future()
        self._start(self._run_connection(), "chat-client")
        if self._local is not None:
            self._start(self._local.run(self._save, self._resume), "chat-client-store")
            if self._local.has_cache:
                comparing = revalidate(self._local, self._state, self._request, self._save)
                self._start(comparing, "chat-client-revalidation")
        if self._is_offline_first and self._state.user:
            return
        try:
            async with asyncio.timeout(self._open_s):
                await asyncio.shield(self._first_welcome)
        except TimeoutError:
            raise self._build_no_gateway_error() from None

    async def _load(self, local: LocalStore) -> None:
        device = self._state.device
        user = find_user(self._token) if isinstance(self._token, str) else None
        await local.load(user or "")
        if self._has_device:
            self._state.device = device

    async def forget(self) -> None:
        """For a logout: close the client and delete its messages, outbox and position."""
        await self._stop()
        if self._local is not None:
            await self._local.delete()

    async def __aexit__(self, *_: object) -> None:
        await self._stop()
        if self._local is not None:
            try:
                await self._save(is_closing=True)
            finally:
                await self._local.close()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(self._create_task(work, name))

    def _create_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._handle_task_end)
        return task

    def _handle_task_end(self, task: asyncio.Task[None]) -> None:
        """End the client if a task failed, for example because the store cannot be written."""
        exc = None if task.cancelled() else task.exception()
        if isinstance(exc, Exception):
            self._fail(exc)
            for other in self._tasks:
                other.cancel()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._fail(Unavailable("the client is closed"))

    @property
    def _has_connected(self) -> bool:
        return self._first_welcome is not None and self._first_welcome.done()

    def _build_no_gateway_error(self) -> Unavailable:
        return Unavailable(f"{NO_GATEWAY} at {self._url}: {self._disconnect_reason}")

    def _fail(self, failure: Exception) -> None:
        """Mark the client as ended and fail every pending call."""
        if self._failure is None:
            self._failure = failure
        self._pending.fail_all(self._failure)
        if self._first_welcome is not None and not self._first_welcome.done():
            self._first_welcome.set_exception(self._failure)
            self._first_welcome.exception()  # otherwise, asyncio logs it as unretrieved
        self._events_ready.set()

    async def _run_connection(self) -> None:
        try:
            while True:
                started = self._now()
                try:
                    await self._run_one_connection()
                except ConnectionLost as lost:
                    self._reconnects.record_duration(self._now() - started)
                    self._reconnects.handle_close(
                        lost.code,
                        lost.reason,
                        self._now(),
                        can_renew=not isinstance(self._token, str) and self._has_connected,
                        device=self._state.device,
                    )
                    self._disconnect_reason = lost.reason
                    is_there = lost.retry_after_ms is not None  # the gateway is not ready yet
                    if not (self._is_patient or self._has_connected or is_there):
                        raise self._build_no_gateway_error() from lost
                    wait = self._reconnects.next_s(lost.retry_after_ms)
                    self._push_events([Disconnected(lost.reason, wait)])
                    await asyncio.sleep(wait)
        except Exception as exc:  # noqa: BLE001  # reported to every pending caller
            self._fail(exc)

    async def _run_one_connection(self) -> None:
        try:
            token = await self._get_token()
        except Unavailable as exc:
            if not self._is_patient and not self._has_connected:
                raise
            raise ConnectionLost(0, exc.message, exc.retry_after_ms) from exc
        async with open_socket(self._url) as socket:
            await socket.send(self._state.build_hello(token, self._activity))
            try:
                async with asyncio.timeout(WELCOME_S):
                    welcome = await socket.receive()
            except TimeoutError:
                raise ConnectionLost(0, "the gateway does not respond to hello") from None
            user = self._state.user
            if user and welcome["user"] != user:
                raise Conflict(
                    f"the store belongs to {user}, but the token is for {welcome['user']}; use "
                    "the same user for both"
                )
            await self._run_session(socket, welcome, token)

    async def _get_token(self) -> str:
        return self._token if isinstance(self._token, str) else await self._token()

    async def _run_session(self, socket: Socket, welcome: Fields, token: str) -> None:
        self._reconnects.record_welcome()
        self._outgoing.clear()
        if self._local is not None:
            self._local.record_welcome(welcome)
        is_first = self._state.cursor is None
        number = self._state.handle_welcome(welcome, self._now())
        tasks = [
            self._create_task(self._write(socket), "chat-client-writer"),
            self._create_task(self._renew(token), "chat-client-renewal"),
            self._create_task(self._load_cleared_chats(), "chat-client-cleared-chats"),
        ]
        try:
            self._flush()
            if is_first:
                await self._save()  # save the first cursor, so that the client can resume there
            if self._first_welcome is not None and not self._first_welcome.done():
                self._first_welcome.set_result(None)
            while True:
                frame = await socket.receive()
                try:
                    if self._local is not None:
                        self._local.record_frame(frame)
                    self._state.handle_frame(number, frame, self._now())
                except (KeyError, TypeError, ValueError) as exc:  # includes msgspec's errors
                    raise ConnectionLost(0, f"unexpected frame: {frame['type']}") from exc
                self._flush()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._state.handle_disconnect(self._now())
            self._flush()

    async def _renew(self, token: str) -> None:
        """Renew the session before its token expires, unless the token is a fixed string."""
        wait_s = None if isinstance(self._token, str) else get_renewal_delay_s(token)
        while wait_s is not None:
            await asyncio.sleep(wait_s)
            try:
                token = await self._get_token()
                await self._request({"type": "auth", "token": token}, ANSWER_S)
                wait_s = get_renewal_delay_s(token)
            except ChatError:
                # If all attempts fail, the gateway closes the session, and the client reconnects.
                wait_s = RETRY_S

    async def _write(self, socket: Socket) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._has_new_operations:
                await self._save()  # save operations before they reach the server
            frames, self._outgoing = self._outgoing, []
            for frame in frames:
                await socket.send(frame)

    def _now(self) -> float:
        return self._clock.monotonic()

    def _flush(self) -> None:
        """Process what `ClientState` has produced: frames, responses, events and the timer."""
        frames = self._state.pop_frames()
        if frames and self._state.is_online:
            self._outgoing += frames
            self._wake.set()
        for number, response in self._state.pop_answers():
            request = self._pending.pop_request(number)
            if self._local is not None and request is not None and isinstance(response, dict):
                self._local.record_answer(request, response)
            self._pending.resolve_request(number, response)
        queued = self._state.pop_queued_events()
        self._push(
            [push._replace(is_known=self._pending.resolve_ack(push.event)) for push in queued]
        )
        self._cleared.apply_events(push.event for push in queued)
        self._schedule()

    def _push(self, queued: list[QueuedEvent]) -> None:
        if self._local is not None:
            self._local.mark_position_changed()
            self._local.record_events([pushed.event for pushed in queued])
        for push in queued:
            self._events.put(push)
        if queued:
            self._events_ready.set()
            if self._events.is_full or self._is_store_full:
                self._state.pause(self._now(), is_paused=True)

    def _push_events(self, events: list[Event]) -> None:
        self._push([QueuedEvent(event, self._state.cursor) for event in events])

    def _apply_preferences(self, preferences: Sequence[ChatPreferences]) -> None:
        self._cleared.apply_preferences(preferences)

    async def _load_cleared_chats(self) -> None:
        if self._api is not None:
            await load_cleared_chats(self.list_chat_preferences)

    def _resume(self) -> None:
        """Let the server send events again if the event queue is empty and the store not full."""
        if not self._events and not self._is_store_full:
            self._state.pause(self._now(), is_paused=False)
            self._flush()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._now()
        due = self._state.get_next_tick(now)
        if due is not None and self._failure is None:
            self._timer = asyncio.get_running_loop().call_later(due - now, self._tick)

    def _tick(self) -> None:
        self._state.tick(self._now())
        self._flush()

    @overload
    def events(self) -> AsyncIterator[Event]: ...

    @overload
    def events(self, kind: type[AnyEvent], /) -> AsyncIterator[AnyEvent]: ...

    @overload
    def events(self, *kinds: type[Event]) -> AsyncIterator[Event]: ...

    async def events(self, *kinds: type[Any]) -> AsyncIterator[Any]:
        """Yield all events, including events from before this call. Only one consumer is allowed.

        `kinds`: classes of `chatserver.client.events`; other events are skipped.

        Raises:
            ChatError: the client has ended and will not reconnect; the message states the cause.
        """
        while True:
            while self._events:
                event = self._events.pop()
                if not kinds or isinstance(event, kinds):
                    yield event
                self._resume()
            if self._failure is not None:
                raise self._failure
            self._events.current = None  # consumed
            if self._local is not None:
                self._local.mark_position_changed()
            self._events_ready.clear()
            await self._events_ready.wait()

    async def _save(self, *, is_closing: bool = False) -> None:
        self._has_new_operations = False
        if self._local is not None:
            await self._local.save(self._events, is_closing=is_closing)

    @property
    def _is_store_full(self) -> bool:
        """True while events are paused because the store has too many unwritten changes."""
        return self._local is not None and self._local.is_full

    @property
    def _has_cache(self) -> bool:
        return self._local is not None and self._local.has_cache

    async def _read_cached(self, request: Fields) -> HistoryPage | None:
        if self._local is None:
            return None
        await self._save()  # write the newest entries to the cache
        page = await self._local.read_page(request)
        return None if page is None else HistoryPage(page.entries, "cache", page.has_more)

    async def _request(self, fields: Fields, deadline_s: float) -> Fields:
        self._check_open()
        now = self._now()
        number = self._state.send_request(fields, now, now + deadline_s)
        future = self._pending.open_request(number, fields)
        self._flush()
        try:
            response: Fields = await future
            return response
        finally:
            self._pending.close_request(number)
            self._state.cancel_request(number)

    def _enqueue(self, operation: OutboxEntry) -> None:
        self._check_open()
        bounds = self._state.bounds
        if len(self._events) >= bounds.events_max + bounds.outbox_max:
            raise Overloaded("too many unread acks; iterate over `events()` to read them")
        self._has_new_operations = self._local is not None
        if self._local is not None and not self._state.is_online:
            self._local.save_requested.set()  # when online, `_write` saves the operation
        self._state.enqueue(operation, self._now())
        self._flush()

    async def _submit(self, operation: OutboxEntry, deadline_s: float) -> Acked:
        pending = self._state.outbox.find(operation.ref)
        self._enqueue(operation)
        if pending is not None and pending.stage is OutboxStage.ACKED:
            return Acked(
                ref=pending.ref,
                chat=pending.chat,
                seq=pending.seq,
                ts=pending.ts,
                mid=pending.mid,
                dup=True,
                durability="hot",
            )
        return await self._pending.wait_for_ack(operation.ref, deadline_s)

    def _notify(self, fields: Fields) -> None:
        self._check_open()
        self._state.notify(fields)
        self._flush()

    def _set_presence_subscriptions(self, users: list[str], *, is_on: bool) -> None:
        self._check_open()
        if is_on:
            self._state.watch(users)
        else:
            self._state.unwatch(users)
        self._flush()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._tasks:
            raise Unavailable("the client is not open: use `async with`")
