"""Routing of a slot's calls to its node: in order, even during slot migrations.

::

               ┌───────── replied ◄────────┐
    send ──► sent directly ─────────────► node
               │ refused: MOVED, ASK, TRYAGAIN      (it did not run)
               ▼
             held ──► sent one at a time, or all at once when the slot's new node is known

Invariants: a slot's calls run in call order, or not at all. If Redis refuses a call but executes a
later one, the refused call fails. A call is repeated only if Redis reported that it did not run.
Calls made in an earlier epoch are never sent to another node. Bounds: at most `HELD_MAX` calls
wait. A call waits until its deadline; while the slot is migrated, for at most `MOVING_S_MAX`.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Mapping, Sequence

from chatserver.errors import REDIS_DOWN, ChatError, Unavailable
from chatserver.hot.redis.cluster_map import ClusterMember, ClusterView
from chatserver.hot.redis.connection_setup import RedisAddress
from chatserver.hot.redis.durability import Durability, Unconfirmed
from chatserver.hot.redis.pipelined_connection import OnReply, PipelinedConnection, Reply
from chatserver.hot.redis.scripts import Value

HELD_MAX = 5_000
MOVING_S_MAX = 0.5
_PAUSE_S, _PAUSE_S_MAX = 0.005, 0.1
_MOVING = ("ASK ", "TRYAGAIN")  # error replies while a slot is being migrated
_REFUSALS = (*_MOVING, "MOVED ", "READONLY")

OnCallReply = Callable[["RoutedCall", Reply], None]


class ClusterNode:
    """A master node and the connection to it."""

    def __init__(self, member: ClusterMember, address: RedisAddress) -> None:
        self.id = member.id
        self.node_address = member.address
        self.address = address
        self.name = address.name
        self.wire: PipelinedConnection | None = None
        self.replid = ""
        self.replicas = 0  # replicas that acknowledge writes; 0 after a WAIT without success
        # The node's first reply to CLUSTER NODES with its current replication id.
        self.first_view: ClusterView | None = None
        # Slots whose partitions' epochs have been loaded from the node since that reply.
        self.epoch_slots: set[int] = set()
        self.reconnect_task: asyncio.Task[None] | None = None

    def close(self, reason: str) -> None:
        """Close the connection and stop reopening it."""
        if self.reconnect_task is not None:
            self.reconnect_task.cancel()
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.abort(f"redis at {self.name}: {reason}")


def find_proven_origin(
    slot: int, node: ClusterNode, origin: tuple[str, str], views: Mapping[str, ClusterView]
) -> str:
    """Return the replication id from which the slot provably moved to `node` without loss, or "".

    `origin`: id and replication id of the node that last supplied the epochs of the slot. The proof
    has two conditions:

    1. The source node lost no writes. Both nodes see it as a healthy master, and it still has the
       replication id under which the slot's epoch was written.
    2. The new node lost no writes. In its first reply to CLUSTER NODES with its current replication
       id, it did not have the slot yet, or the epoch was written to it under this replication id.

    Without this proof, the partition gets a new epoch.
    """
    source_id, replid = origin
    source, target = views.get(source_id), views.get(node.id)
    if source is None or target is None or node.first_view is None:
        return ""
    member = target.members.get(source_id)
    is_whole = (
        source.replid == replid
        and target.replid == node.replid
        and source.members[source.me].is_master
        and member is not None
        and member.is_master
        and member.is_healthy
        and (slot in node.epoch_slots or not node.first_view.has_or_imports(slot))
    )
    return replid if is_whole else ""


class RoutedCall:
    """One call, or a call followed by WAIT or WAITAOF."""

    __slots__ = (
        "_before",
        "_durable",
        "_has_wait",
        "_on_call_reply",
        "_replies_left",
        "commands",
        "generation",
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
        generation: int,
        durable: Durability | None,
    ) -> None:
        self.on_reply = on_reply
        self.commands = commands
        self.made_at = made_at
        self.generation = generation  # `SlotRoute._generation` when the call was made
        self.node: ClusterNode | None = None  # node to which the call was sent
        self.refusal = ""  # error reply if the last attempt was refused
        self._durable = durable  # None if the last command is not a WAIT or WAITAOF
        self._has_wait = durable is not None
        self._replies_left = 0
        self._before: Reply = None  # the second-to-last reply
        self._on_call_reply: OnCallReply | None = None

    def send_on(self, wire: PipelinedConnection, on_call_reply: OnCallReply, replicas: int) -> None:
        """Send the call on `wire`; `on_call_reply` receives the last reply.

        If the server has fewer `replicas` than the call requires, send no WAIT.
        """
        self.refusal = ""
        self._has_wait = self._durable is not None and replicas >= self._durable.replicas
        is_short = self._durable is not None and not self._has_wait
        commands = self.commands[:-1] if is_short else self.commands
        self._replies_left = len(commands)
        self._on_call_reply = on_call_reply
        for command in commands:
            wire.send(self._handle_reply, *command)

    def _handle_reply(self, reply: Reply) -> None:
        self._replies_left -= 1
        if isinstance(reply, Exception) and not self.refusal:
            text = str(reply)
            if text.startswith(_REFUSALS):
                self.refusal = text
        if self._replies_left == 1:
            self._before = reply
        elif self._replies_left == 0 and self._on_call_reply is not None:
            if self._has_wait and self._durable is not None:
                reply = self._durable.check_reply(self._before, reply)
            elif self._durable is not None:
                reply = self._durable.check_without_replicas(reply, 0)
            self._on_call_reply(self, reply)


class SlotRoute:
    """Sends the calls of one slot. `partitions` are the partitions whose keys are in it."""

    def __init__(
        self,
        *,
        slot: int,
        partitions: Sequence[int],
        refresh_map: Callable[[], None],
        find_wire: Callable[[str], PipelinedConnection | None],
        timeout_s: float,
    ) -> None:
        self.slot = slot
        self.partitions = partitions
        self.node: ClusterNode | None = None
        self.is_ready = False  # True if the slot's node and epoch are known
        self._refresh_map = refresh_map
        self._find_wire = find_wire
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._generation = 0
        self._in_flight = 0
        self._is_held = False
        self._refused: list[RoutedCall] = []  # calls that the node refused, in call order
        self._held: collections.deque[RoutedCall] = collections.deque()  # calls waiting to be sent
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause_s = _PAUSE_S

    @property
    def wire(self) -> PipelinedConnection | None:
        """The connection to the node that serves the slot, or None."""
        return self.node.wire if self.node is not None else None

    def send(
        self,
        on_reply: OnReply,
        commands: Sequence[tuple[Value, ...]],
        *,
        durable: Durability | None = None,
    ) -> None:
        """Send `commands` as one call; see `HotClient.send`.

        With `durable`, the last command is a WAIT or WAITAOF.
        """
        self._send(RoutedCall(on_reply, commands, self._loop.time(), self._generation, durable))

    def _send(self, call: RoutedCall) -> None:
        if self._is_held:
            if len(self._held) >= HELD_MAX:
                self._fail_soon(
                    call, Unavailable("redis: too many calls await a slot migration; try again")
                )
            else:
                self._held.append(call)
            return
        wire = self.wire
        if wire is None:
            self._fail_soon(call, self._make_unavailable())
            return
        self._in_flight += 1
        call.node = self.node
        call.send_on(wire, self._handle_reply, self._replicas)

    @property
    def _replicas(self) -> int:
        return 0 if self.node is None else self.node.replicas

    def _handle_reply(self, call: RoutedCall, reply: Reply) -> None:
        self._in_flight -= 1
        if isinstance(reply, Unconfirmed) and call.node is not None:
            call.node.replicas = 0  # until the next refresh
        if call.refusal:
            self._refused.append(call)
            # A refusal by the slot's previous node is expected; it needs no refresh.
            if call.node is self.node and not call.refusal.startswith(_MOVING):
                self._request_refresh()
            self._hold()
        else:
            if self._refused:
                overtaken, self._refused = self._refused, []
                self._fail_all(
                    overtaken,
                    Unavailable("redis: a slot migration changed the order of calls; try again"),
                )
            self._pause_s = _PAUSE_S
            call.on_reply(reply)
        if self._in_flight == 0:
            self._changed.set()

    # controlled by the client

    def hold(self) -> None:
        """Hold calls until `set_node`, because the node may have lost recent writes."""
        self.is_ready = False
        self._hold()

    def set_node(self, node: ClusterNode | None) -> None:
        """Send calls to `node` from now on. None means that no node serves the slot."""
        self.node = node
        self.is_ready = True
        self._changed.set()

    def fail_unsent(self) -> None:
        """Fail all unsent calls, because the epoch has changed."""
        self._generation += 1
        self._fail_all(
            self._pop_waiting(), Unavailable("redis: the server was replaced while the call waited")
        )

    def close(self) -> None:
        """Fail all waiting calls."""
        if self._task is not None:
            self._task.cancel()
        self.fail_unsent()

    # holding calls

    def _request_refresh(self) -> None:
        self.is_ready = False
        self._refresh_map()

    def _hold(self) -> None:
        self._is_held = True
        if self._task is None:
            self._task = asyncio.create_task(self._send_held(), name=f"slot-{self.slot}")

    async def _send_held(self) -> None:
        """Send the held calls, until calls can be sent directly again."""
        is_moving = False  # During a slot migration, calls are sent one at a time, to either node.
        try:
            await self._pause()  # pause after a refusal, longer after each further one
            while True:
                if self._in_flight or not self.is_ready:
                    await self._wait_changed()
                self._held.extendleft(reversed(self._refused))
                self._refused.clear()
                self._expire()
                if self._in_flight or not self.is_ready:
                    continue
                is_moving = is_moving or bool(
                    self._held and self._held[0].refusal.startswith(_MOVING)
                )
                if not is_moving or not self._held or self.wire is None:
                    return
                await self._send_first_held()
        finally:
            self._task = None
            self._is_held = False
            for call in self._pop_waiting():
                self._send(call)

    async def _wait_changed(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(_PAUSE_S_MAX):
                await self._changed.wait()
        except TimeoutError:
            self._refresh_map()

    async def _pause(self) -> None:
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_S_MAX)

    async def _send_first_held(self) -> None:
        """Send the first held call to the slot's node and, if it answers ASK, to the target node.

        A refused call is held again.
        """
        call, wire = self._held.popleft(), self.wire
        assert wire is not None
        reply = await self._send_and_wait(call, wire, is_asking=False)
        if call.refusal.startswith("ASK "):
            target = self._find_wire(call.refusal.split(" ")[2])
            if target is not None:
                reply = await self._send_and_wait(call, target, is_asking=True)
        if not call.refusal:
            self._pause_s = _PAUSE_S
            call.on_reply(reply)
            return
        is_moving = call.refusal.startswith(_MOVING)
        if is_moving and self._loop.time() - call.made_at > MOVING_S_MAX:
            call.on_reply(Unavailable(f"redis: {call.refusal}", public=REDIS_DOWN))
            return
        self._held.appendleft(call)
        if is_moving:
            await self._pause()
        else:
            self._request_refresh()

    async def _send_and_wait(
        self, call: RoutedCall, wire: PipelinedConnection, *, is_asking: bool
    ) -> Reply:
        result: asyncio.Future[Reply] = self._loop.create_future()

        def on_call_reply(_: RoutedCall, reply: Reply) -> None:
            if not result.done():
                result.set_result(reply)

        if is_asking:
            wire.send(_ignore, "ASKING")
        call.send_on(wire, on_call_reply, self._replicas)
        try:
            return await result
        except asyncio.CancelledError:
            call.on_reply(Unavailable("redis: this process is stopping"))
            raise

    def _expire(self) -> None:
        since = self._loop.time() - self._timeout_s
        late: list[RoutedCall] = []
        remaining: collections.deque[RoutedCall] = collections.deque()
        for call in self._held:
            is_late = call.made_at < since or call.generation != self._generation
            (late if is_late else remaining).append(call)
        if late:
            self._held = remaining
            self._fail_all(late, Unavailable("redis: timed out during a slot migration; try again"))

    # ending calls

    def _pop_waiting(self) -> list[RoutedCall]:
        waiting = [*self._refused, *self._held]
        self._refused.clear()
        self._held.clear()
        return waiting

    def _fail_all(self, calls: Sequence[RoutedCall], error: ChatError) -> None:
        for call in calls:
            call.on_reply(error)

    def _fail_soon(self, call: RoutedCall, error: ChatError) -> None:
        self._loop.call_soon(call.on_reply, error)

    def _make_unavailable(self) -> Unavailable:
        if self.node is None:
            return Unavailable("redis: no node of the cluster serves this slot")
        return Unavailable(f"redis at {self.node.name}: not connected", public=REDIS_DOWN)


def _ignore(reply: Reply) -> None:
    """Ignore the reply to ASKING."""
