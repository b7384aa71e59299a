"""Simulated users of one worker process: chat setup, random actions and the final check."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from chatserver.domain.jitter import add_jitter
from chatserver.loadtest import frame_reader
from chatserver.loadtest.delivery_checker import ChatRecord, ReceivedSeqs
from chatserver.loadtest.device import LoadDevice
from chatserver.loadtest.frame_reader import ReceivedFrame
from chatserver.loadtest.plan import ChatKind, LoadPlan, split_groups
from chatserver.loadtest.worker_state import WorkerState, get_now_us
from chatserver.task_groups import map_concurrently

T = TypeVar("T")

CHATS_OPENED_MAX: Final = 16
CREATED_MAX, INVITED_MAX = 255, 99  # maximum users per request
FAILURES_MAX: Final = 3  # Setup fails after this many failed connects, if no device has connected.
SETUP_S: Final = 300.0  # time limit for the setup
PUSH_S = 5.0
RECONNECT_DELAY_S: Final = 1.0  # In `reconnect_all`, half of the users reconnect after this time.
_POLL_S: Final = 0.05


class SetupFailed(Exception):
    """The load cannot start; the message states the cause."""


class LoadTestChat(msgspec.Struct, frozen=True):
    """A chat of this run. `members[0]` has opened it."""

    id: str
    members: Sequence[LoadDevice]


class LoadUsers:
    """All devices of this process. `run_action` runs a random action."""

    def __init__(self, plan: LoadPlan, state: WorkerState) -> None:
        self._plan, self._state = plan, state
        self._chance = random.Random(f"{plan.seed}-{plan.first_user}")  # noqa: S311  not a secret
        first = plan.first_user
        self.devices = [LoadDevice(state, n) for n in range(first, first + plan.users)]
        self.chats: dict[str, list[LoadTestChat]] = {}
        self._weights: list[tuple[float, list[LoadTestChat]]] = []
        self._arrived = 0
        self._storms = 0
        self._all: list[LoadTestChat] = []

    async def set_up(self) -> None:
        """Connect all devices and open the chats; wait until all members have their chats.

        Raises:
            SetupFailed: a request was refused, or the setup took longer than `SETUP_S`.
        """
        begin = asyncio.create_task(self._set_up(), name="gather")
        try:
            async with asyncio.timeout(SETUP_S):
                while not begin.done():
                    await asyncio.wait([begin], timeout=_POLL_S)
                    self._check_reachable()
                await begin
        except TimeoutError:
            reason = self._state.last_failure or "some users have not received their chats"
            raise SetupFailed(f"not ready within {SETUP_S:g} s: {reason}") from None
        except ConnectionError as exc:
            raise SetupFailed(str(exc)) from exc
        finally:
            begin.cancel()

    def _check_reachable(self) -> None:
        state = self._state
        if state.fatal:
            raise SetupFailed(state.fatal)
        is_nobody_there = not any(device.is_live for device in self.devices)
        if is_nobody_there and state.meters.counts["connects_failed"] >= FAILURES_MAX:
            raise SetupFailed(f"no gateway at {self._plan.url}: {state.last_failure}")

    async def _set_up(self) -> None:
        if self._plan.mix.connect:
            await self.devices[0].start_connecting(get_now_us())  # detects a wrong URL early
            self.devices[0].abort()
            return
        await self._connect_all()
        for kind in self._plan.list_chat_kinds():
            groups = split_groups(len(self.devices), kind.members)
            if not groups:
                raise SetupFailed(f"{kind.name}: needs at least 2 users per process")
            open_chat = functools.partial(self._open, kind)
            self.chats[kind.name] = await map_concurrently(
                open_chat, groups, in_flight_max=CHATS_OPENED_MAX, name="open a chat"
            )
            self._weights.append((kind.share, self.chats[kind.name]))
        self._all = [chat for _, chats in self._weights for chat in chats]
        for _ in range(self._plan.preload):
            for chat in self._all:
                self._chance.choice(chat.members).send(chat.id, get_now_us())
            await self._wait_until(lambda: all(len(device.outbox) < 100 for device in self.devices))
        await self._wait_until(self._is_quiet)

    async def _connect_all(self) -> None:
        begin = time.monotonic()
        for number, device in enumerate(self.devices):
            await asyncio.sleep(begin + number / self._plan.connects_per_s - time.monotonic())
            device.start_connecting(get_now_us())
        await self._wait_until(lambda: all(user_device.is_live for user_device in self.devices))

    async def _open(self, kind: ChatKind, group: range) -> LoadTestChat:
        """Open a chat, and wait until each member has received its first message."""
        members = [self.devices[n] for n in group]
        run, first = self._plan.run, members[0]
        others = [device.user for device in members[1:]]
        if kind.is_direct:
            opened = await self._send_request(
                first, frame_reader.Ok, type="open_direct", user=others[0]
            )
        else:
            ref, ref_users = f"{run}-{kind.name}-{first.index}", others[:CREATED_MAX]
            fields = {"type": "create_chat", "ref": ref, "members": ref_users, "name": "load"}
            opened = await self._send_request(first, frame_reader.Ok, **fields)
        assert isinstance(opened, frame_reader.Ok)
        assert opened.chat is not None
        chat = opened.chat.chat
        for start in range(CREATED_MAX, len(others), INVITED_MAX):
            ref = f"{run}-{kind.name}-{first.index}-{start}"
            ref_users = others[start : start + INVITED_MAX]
            fields = {"type": "invite", "chat": chat, "ref": ref, "users": ref_users}
            await self._send_request(first, (frame_reader.Ok, frame_reader.Ack), **fields)
        for device in members:
            device.received[chat] = ReceivedSeqs()
        ref, body = f"{run}-begin-{kind.name}-{first.index}", f"{run} begins"
        fields = {"type": "send", "chat": chat, "ref": ref, "body": body}
        ack = await self._send_request(first, frame_reader.Ack, **fields)
        assert isinstance(ack, frame_reader.Ack)
        await self._wait_until(
            lambda: all((d.received[chat].last or 0) >= ack.seq for d in members)
        )
        book = self._state.records[chat] = ChatRecord(chat, len(members), self._state.findings)
        book.base = ack.seq
        return LoadTestChat(chat, members)

    async def _send_request(
        self,
        device: LoadDevice,
        expected: type[ReceivedFrame] | tuple[type[ReceivedFrame], ...],
        **fields: Any,
    ) -> ReceivedFrame:
        """Send an idempotent request; retry until it succeeds or is refused permanently.

        Raises:
            SetupFailed: the request is refused permanently.
        """
        while True:
            try:
                response = await device.request(**fields)
            except (ConnectionError, TimeoutError) as exc:
                self._state.last_failure = f"{fields['type']}: {exc or 'no response'}"
                await self._wait_until(lambda: device.is_live)
                continue
            if isinstance(response, expected):
                return response
            if not isinstance(response, frame_reader.Refusal) or not response.temporary:
                raise SetupFailed(f"{fields['type']}: {response}")
            self._state.last_failure = f"{fields['type']}: {response.code}: {response.message}"
            await asyncio.sleep(add_jitter(max(0.1, response.retry_after_ms / 1000), 1.0, 1.5))

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110  polls: the devices have no common event
            await asyncio.sleep(_POLL_S)

    def run_action(self, due_us: int) -> None:
        """Run one random action; its latency counts from `due_us`."""
        self._state.meters.counts["offered"] += 1
        mix, roll = self._plan.mix, self._chance.random()
        if roll < mix.send:
            chat = self._pick_chat()
            self._pick(chat.members).send(chat.id, due_us)
        elif roll < mix.send + mix.page:
            chat = self._pick_chat()
            book = self._state.records[chat.id]
            before = book.base + 2 + int(self._chance.random() * (book.top - book.base))
            self._pick(chat.members).request_page(chat.id, before, due_us)
        elif roll < mix.send + mix.page + mix.reconnect:
            device = self._pick(self.devices)
            device.abort()
            device.start_connecting(due_us)
        else:
            device = self.devices[self._arrived % len(self.devices)]
            self._arrived += 1
            device.abort()
            device.start_connecting(due_us)

    def _pick_chat(self) -> LoadTestChat:
        shares = [weight for weight, _ in self._weights]
        return self._pick(self._chance.choices(self._weights, shares)[0][1])

    def _pick(self, items: Sequence[T]) -> T:
        return items[int(self._chance.random() * len(items))]

    def reconnect_all(self) -> None:
        """Disconnect all users. Half reconnect immediately, half after `RECONNECT_DELAY_S`."""
        self._storms += 1
        for device in self.devices:
            device.abort()
        loop, due_us = asyncio.get_running_loop(), get_now_us()
        for number, device in enumerate(self.devices):
            wait_s = RECONNECT_DELAY_S if (number + self._storms) % 2 else 0.0
            loop.call_later(wait_s, device.start_connecting, due_us + round(wait_s * 1e6))

    async def wait_for_deliveries(self, patience_s: float) -> None:
        """Wait up to `patience_s` seconds for all acked messages to arrive.

        Devices that still lack messages after `PUSH_S` (or half of `patience_s`, if less)
        reconnect.
        """
        push_s = min(PUSH_S, patience_s / 2)
        if await self._is_quiet_within(push_s):
            return
        for device in self.devices:
            if not device.is_idle or device.is_behind():
                self._state.meters.counts["resumed_to_settle"] += 1
                device.abort()
                device.start_connecting(get_now_us())
        await self._is_quiet_within(patience_s - push_s)

    async def _is_quiet_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._wait_until(self._is_quiet)
        except TimeoutError:
            return False
        return True

    def _is_quiet(self) -> bool:
        if self._plan.mix.connect:
            return all(device.is_live for device in self.devices[: self._arrived])
        return all(device.is_idle and not device.is_behind() for device in self.devices)

    def finish(self) -> dict[str, int]:
        """Check all chats; return how many messages have not been acked, or not been sent."""
        findings, unacked, unsent = self._state.findings, 0, 0
        for chat in self._all:
            book = self._state.records[chat.id]
            book.finish(self._state.retried)
            for device in chat.members:
                unseen = book.list_unseen(device.received[chat.id])
                if unseen:
                    text = f"{device.user} is missing seqs {unseen[:10]} of {chat.id}"
                    findings.add("lost", text, len(unseen))
        for device in self.devices:
            waiting = [*device.in_flight.values(), *device.outbox]
            unacked += sum(draft.attempts > 0 for draft in waiting)
            unsent += sum(draft.attempts == 0 for draft in waiting)
        return {"unacked": unacked, "unsent": unsent}

    def count_expected(self) -> int:
        """Return the number of deliveries that the acked messages require."""
        return sum(book.acked * book.devices for book in self._state.records.values())

    def close(self) -> None:
        self._state.is_over = True
        for device in self.devices:
            device.close()
