"""The way of one slot's calls to the node that serves it: in order, and past moves of the slot.

::

               ┌──────── answered ◄────────┐
    send ──► straight ──────────────────► node
               │ refused: MOVED, ASK, TRYAGAIN      (it did not run)
               ▼
             held ──► one at a time, or all once the slot has settled elsewhere

Invariants: calls of a slot run in the order in which they were made, or not at all; a refused call
that a later one has overtaken fails. A call is made again only if Redis said that it did not run. A
call of an earlier epoch never reaches another node. Bounds: `HELD_MAX` calls wait, none for longer
than the deadline of a call, and for a slot that is being moved `MOVING_S_MAX`.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from typing import Protocol

from chatserver.errors import ChatError, Unavailable
from chatserver.hot.replies import Durable
from chatserver.hot.scripts import Value
from chatserver.hot.wire import OnReply, Reply, Wire

HELD_MAX = 5_000
MOVING_S_MAX = 0.5
_PAUSE_S, _PAUSE_S_MAX = 0.005, 0.1
_MOVING = ("ASK ", "TRYAGAIN")  # the slot is on its way
_REFUSALS = (*_MOVING, "MOVED ", "READONLY")

Answered = Callable[["Call", Reply], None]


class Node(Protocol):
    """A node that a slot may be served by."""

    name: str
    wire: Wire | None


class Desk(Protocol):
    """What a route needs of its client."""

    def look_soon(self) -> None:
        """Find out anew who serves what."""

    def find_wire(self, address: str) -> Wire | None:
        """Return the connection to a node; None if there is none."""


class Call:
    """One call, or a call and the WAIT behind it."""

    __slots__ = (
        "_answered",
        "_before",
        "_durable",
        "_left",
        "commands",
        "life",
        "made_at",
        "node",
        "on_reply",
        "refusal",
    )

    def __init__(
        self,
        on_reply: OnReply,
        commands: Sequence[tuple[Value, ...]],
        made_at: float,
        life: int,
        durable: Durable | None,
    ) -> None:
        self.on_reply = on_reply
        self.commands = commands
        self.made_at = made_at
        self.life = life  # of its route
        self.node: Node | None = None  # that it was sent to
        self.refusal = ""  # what the last try was refused with
        self._durable = durable  # None: the last command is no WAIT
        self._left = 0
        self._before: Reply = None  # the answer before the last
        self._answered: Answered | None = None

    def send_on(self, wire: Wire, answered: Answered) -> None:
        """Try it on a connection; `answered` gets the last reply."""
        self.refusal = ""
        self._left = len(self.commands)
        self._answered = answered
        for command in self.commands:
            wire.send(self._take, *command)

    def _take(self, reply: Reply) -> None:
        self._left -= 1
        if isinstance(reply, Exception) and not self.refusal:
            text = str(reply)
            if text.startswith(_REFUSALS):
                self.refusal = text
        if self._left == 1:
            self._before = reply
        elif self._left == 0 and self._answered is not None:
            if self._durable is not None:
                reply = self._durable.judge(self._before, reply)
            self._answered(self, reply)


class Route:
    """One slot's way. `partitions` are those that live in it."""

    def __init__(self, slot: int, partitions: Sequence[int], desk: Desk, timeout_s: float) -> None:
        self.slot = slot
        self.partitions = partitions
        self.node: Node | None = None
        self.is_settled = False  # it is known who serves the slot, and in which epoch
        self._desk = desk
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._life = 0
        self._in_flight = 0
        self._is_held = False
        self._refused: list[Call] = []  # they came back
        self._held: collections.deque[Call] = collections.deque()  # they were made since
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause_s = _PAUSE_S

    @property
    def wire(self) -> Wire | None:
        """The connection to who serves it; None while there is none."""
        return self.node.wire if self.node is not None else None

    def send(
        self,
        on_reply: OnReply,
        commands: Sequence[tuple[Value, ...]],
        *,
        durable: Durable | None = None,
    ) -> None:
        """Make a call; see `HotClient.send`. `durable`: its command is the last one."""
        self._send(Call(on_reply, commands, self._loop.time(), self._life, durable))

    def _send(self, call: Call) -> None:
        if self._is_held:
            if len(self._held) >= HELD_MAX:
                self._fail_soon(call, Unavailable("redis: too many calls wait for a moving slot"))
            else:
                self._held.append(call)
            return
        wire = self.wire
        if wire is None:
            self._fail_soon(call, self._down())
            return
        self._in_flight += 1
        call.node = self.node
        call.send_on(wire, self._answered)

    def _answered(self, call: Call, reply: Reply) -> None:
        self._in_flight -= 1
        if call.refusal:
            self._refused.append(call)
            # An answer from where the slot was before it settled tells nothing new.
            if call.node is self.node and not call.refusal.startswith(_MOVING):
                self._unsettle()
            self._hold()
        else:
            if self._refused:
                overtaken, self._refused = self._refused, []
                self._fail_all(overtaken, Unavailable("redis: a later call came through first"))
            self._pause_s = _PAUSE_S
            call.on_reply(reply)
        if self._in_flight == 0:
            self._stirred.set()

    # what the client says

    def hold(self) -> None:
        """Hold calls back until `settle`: who serves the slot may have gone back in time."""
        self.is_settled = False
        self._hold()

    def settle(self, node: Node | None) -> None:
        """Calls go to this node from now on; None: nobody serves the slot."""
        self.node = node
        self.is_settled = True
        self._stirred.set()

    def end_life(self) -> None:
        """Fail what was made up to now and is not on its way: it belongs to another epoch."""
        self._life += 1
        self._fail_all(self._take_all(), Unavailable("redis: was replaced while the call waited"))

    def close(self) -> None:
        """Fail what waits."""
        if self._task is not None:
            self._task.cancel()
        self.end_life()

    # holding back

    def _unsettle(self) -> None:
        self.is_settled = False
        self._desk.look_soon()

    def _hold(self) -> None:
        self._is_held = True
        if self._task is None:
            self._task = asyncio.create_task(self._work_off(), name=f"slot-{self.slot}")

    async def _work_off(self) -> None:
        """Hold calls back until they can go straight again."""
        is_moving = False  # keys are on their way: one call at a time, wherever it can run
        try:
            await self._pause()  # every refusal costs a moment, and the next one more
            while True:
                if self._in_flight or not self.is_settled:
                    await self._wait_stirred()
                self._held.extendleft(reversed(self._refused))
                self._refused.clear()
                self._expire()
                if self._in_flight or not self.is_settled:
                    continue
                is_moving = is_moving or bool(
                    self._held and self._held[0].refusal.startswith(_MOVING)
                )
                if not is_moving or not self._held or self.wire is None:
                    return
                await self._try_first()
        finally:
            self._task = None
            self._is_held = False
            for call in self._take_all():
                self._send(call)

    async def _wait_stirred(self) -> None:
        self._stirred.clear()
        try:
            async with asyncio.timeout(_PAUSE_S_MAX):
                await self._stirred.wait()
        except TimeoutError:
            self._desk.look_soon()

    async def _pause(self) -> None:
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_S_MAX)

    async def _try_first(self) -> None:
        """Try the first call where the slot is, then where it is going; keep it if refused."""
        call, wire = self._held.popleft(), self.wire
        assert wire is not None
        reply = await self._try(call, wire, is_asking=False)
        if call.refusal.startswith("ASK "):
            target = self._desk.find_wire(call.refusal.split(" ")[2])
            if target is not None:
                reply = await self._try(call, target, is_asking=True)
        if not call.refusal:
            self._pause_s = _PAUSE_S
            call.on_reply(reply)
            return
        is_moving = call.refusal.startswith(_MOVING)
        if is_moving and self._loop.time() - call.made_at > MOVING_S_MAX:
            call.on_reply(Unavailable(f"redis: {call.refusal}"))
            return
        self._held.appendleft(call)
        if is_moving:
            await self._pause()
        else:
            self._unsettle()

    async def _try(self, call: Call, wire: Wire, *, is_asking: bool) -> Reply:
        answer: asyncio.Future[Reply] = self._loop.create_future()

        def answered(_: Call, reply: Reply) -> None:
            if not answer.done():
                answer.set_result(reply)

        if is_asking:
            wire.send(_ignore, "ASKING")
        call.send_on(wire, answered)
        try:
            return await answer
        except asyncio.CancelledError:
            call.on_reply(Unavailable("redis: this process is stopping"))
            raise

    def _expire(self) -> None:
        since = self._loop.time() - self._timeout_s
        late: list[Call] = []
        kept: collections.deque[Call] = collections.deque()
        for call in self._held:
            is_late = call.made_at < since or call.life != self._life
            (late if is_late else kept).append(call)
        if late:
            self._held = kept
            self._fail_all(late, Unavailable("redis: the slot is moving; no answer in time"))

    # ending calls

    def _take_all(self) -> list[Call]:
        taken = [*self._refused, *self._held]
        self._refused.clear()
        self._held.clear()
        return taken

    def _fail_all(self, calls: Sequence[Call], error: ChatError) -> None:
        for call in calls:
            call.on_reply(error)

    def _fail_soon(self, call: Call, error: ChatError) -> None:
        self._loop.call_soon(call.on_reply, error)

    def _down(self) -> Unavailable:
        if self.node is None:
            return Unavailable("redis: no node of the cluster serves this slot")
        return Unavailable(f"redis at {self.node.name}: not connected")


def _ignore(reply: Reply) -> None:
    """ASKING is only said; the call behind it has the answer."""
