"""Client of a Redis Cluster: a connection to each master, and a `SlotRoute` for each slot in use.

::

    refresh (every second, on every MOVED, more often while a node is down)
      query every master ─► slot owners and replication ids ─► changed routes hold their calls
                         ─► read the epochs of their partitions ─► send the calls to the new node

A partition's epoch is stored with the replication id (`replid`) of the node that wrote the epoch. A
promoted or restarted node has another replication id and may have lost recent writes, so its
partitions get a new epoch. A slot migration moves the slot to another node without loss. The epoch
is kept if this process can prove that nothing was lost; see `slot_routes.find_proven_origin` and
decision 0004.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable, Sequence
from typing import Any

import redis.asyncio
import redis.exceptions
import structlog

from chatserver import config
from chatserver.domain.ids import Epoch
from chatserver.domain.jitter import add_jitter
from chatserver.errors import REDIS_DOWN, ChatError, ConfigError, CorruptData, Unavailable
from chatserver.hot.redis.client import RECONNECT_S_MAX, HotClient
from chatserver.hot.redis.cluster_map import ClusterMember, ClusterView, SlotClaims, parse_view
from chatserver.hot.redis.connection_setup import (
    RedisAddress,
    handshake_deadline,
    log_in,
    open_connection,
    prepare,
    read_replication,
)
from chatserver.hot.redis.keys import get_slot
from chatserver.hot.redis.pipelined_connection import (
    OnReply,
    PipelinedConnection,
    Reply,
    find_first_key,
)
from chatserver.hot.redis.replies import call_on
from chatserver.hot.redis.scripts import Value
from chatserver.hot.redis.slot_routes import ClusterNode, SlotRoute, find_proven_origin

log = structlog.get_logger()

REFRESH_S = 1.0  # refresh interval of the cluster map while all slots are served
_REFRESH_DOWN_S = 0.15  # refresh interval while a node does not respond
_REFRESH_PAUSE_S = 0.005  # minimum pause between two refreshes
_ADDRESSES_TRIED_MAX = 12  # maximum known addresses to query when no master responds


class ClusterClient(HotClient):
    """Client of a cluster. Only calls on keys of the same slot are sure to keep their order."""

    is_ordered = False

    def __init__(self, settings: config.Redis, *, is_read_only: bool = False) -> None:
        super().__init__(settings, is_read_only=is_read_only)
        if self.address.path is not None or self.address.database:
            raise ConfigError(
                "redis.url (CHAT_REDIS_URL): a cluster requires a host and a port, and allows "
                "only database 0"
            )
        self._nodes: dict[str, ClusterNode] = {}
        # Addresses of all nodes, replicas included, as last reported by the masters.
        self._known_addresses: list[RedisAddress] = []
        self._claims = SlotClaims(())
        self._routes: dict[int, SlotRoute] = {}
        # Slot → (id, replication id) of the node that last supplied the epochs of the slot's
        # partitions.
        self._epoch_origins: dict[int, tuple[str, str]] = {}
        self._served = 0  # number of routes that had a connection at the last refresh
        self._refresh_requested = asyncio.Event()

    # calls

    @property
    def is_up(self) -> bool:
        """True while any partition is reachable."""
        return any(r.is_ready and r.wire for r in self._routes.values() if r.partitions)

    def send(self, on_reply: OnReply, *args: Value) -> None:
        """Send a call to the node of its first key; see `HotClient.send`."""
        key = find_first_key(args)
        if key is not None:
            self._get_route(get_slot(key)).send(on_reply, (args,))
        elif args[0] == "SCRIPT":
            self._send_to_all(on_reply, args)
        else:
            self._send_to_any(on_reply, args)

    def _send_and_wait(self, on_reply: OnReply, args: Sequence[Value]) -> None:
        key = find_first_key(args)
        assert key is not None, "a commit script has keys"
        commands = (tuple(args), self._wait)
        self._get_route(get_slot(key)).send(on_reply, commands, durable=self._durable)

    def _get_route(self, slot: int) -> SlotRoute:
        route = self._routes.get(slot)
        if route is None:
            route = self._routes[slot] = self._make_route(slot, ())
            # If the cluster map is outdated, a MOVED reply triggers a refresh.
            route.set_node(self._find_owner(slot))
        return route

    def _find_owner(self, slot: int) -> ClusterNode | None:
        return self._nodes.get(self._claims.find_owner(slot) or "")

    def _send_to_any(self, on_reply: OnReply, args: Sequence[Value]) -> None:
        wire = next((node.wire for node in self._nodes.values() if node.wire is not None), None)
        if wire is None:
            asyncio.get_running_loop().call_soon(on_reply, self._make_unavailable())
        else:
            wire.send(on_reply, *args)

    def _send_to_all(self, on_reply: OnReply, args: Sequence[Value]) -> None:
        """Send a call to all connected nodes. `on_reply` gets an error only if all nodes fail."""
        wires = [node.wire for node in self._nodes.values() if node.wire is not None]
        if not wires:
            asyncio.get_running_loop().call_soon(on_reply, self._make_unavailable())
            return
        replies: list[Reply] = []

        def collect(reply: Reply) -> None:
            replies.append(reply)
            if len(replies) == len(wires):
                good = [reply for reply in replies if not isinstance(reply, Exception)]
                on_reply((good or replies)[0])

        for wire in wires:
            wire.send(collect, *args)

    def create_blocking_client(self, key: str) -> redis.asyncio.Redis:
        """Return a client for blocking reads from the node that has `key`; see `HotClient`."""
        node = self._get_route(get_slot(key)).node
        if node is None or node.wire is None:
            self.refresh_soon()
            raise Unavailable(f"redis at {self.name}: no node serves {key}", public=REDIS_DOWN)
        return self._create_blocking_client_at(node.address)

    async def with_deadline(self, call: Any) -> Any:
        """Await a call on a blocking client; a failure triggers a refresh of the cluster map."""
        try:
            return await super().with_deadline(call)
        except (redis.exceptions.RedisError, OSError):
            self.refresh_soon()
            raise

    def _make_route(self, slot: int, partitions: Sequence[int]) -> SlotRoute:
        return SlotRoute(
            slot=slot,
            partitions=partitions,
            refresh_map=self.refresh_soon,
            find_wire=self.find_wire,
            timeout_s=self.settings.call_timeout_s,
        )

    def refresh_soon(self) -> None:
        """Refresh the cluster map immediately."""
        self._refresh_requested.set()

    def find_wire(self, address: str) -> PipelinedConnection | None:
        """Return the connection to the node with this address, or None."""
        wires = (n.wire for n in self._nodes.values() if address in (n.node_address, n.name))
        return next(wires, None)

    # connecting

    async def connect(self) -> None:
        """Connect to every master and read every epoch; see `HotClient.connect`."""
        by_slot: dict[int, list[int]] = {}
        for partition in range(self.settings.partitions):
            by_slot.setdefault(get_slot(self.keys.epoch(partition)), []).append(partition)
        for slot, partitions in by_slot.items():
            self._routes[slot] = self._make_route(slot, partitions)
        views = [await self._read_view_once(self.address)]
        self._update_nodes(views)
        opened = (self._open(node) for node in self._nodes.values())
        for outcome in await asyncio.gather(*opened, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        failures = await self._refresh()
        if failures:
            raise failures[0]
        orphans = [route.slot for route in self._routes.values() if route.wire is None]
        if orphans:
            raise Unavailable(
                f"redis at {self.name}: no node serves {len(orphans)} of the slots in use",
                public=REDIS_DOWN,
            )
        for node in self._nodes.values():
            self._start_reconnects(node)

    async def _read_view_once(self, address: RedisAddress) -> ClusterView:
        wire = await open_connection(address, self.settings)
        async with handshake_deadline(wire, self.settings):
            await log_in(wire, address)
            view = await self._query_view(wire, address)
        wire.abort("the query is complete")
        return view

    async def _query_view(self, wire: PipelinedConnection, address: RedisAddress) -> ClusterView:
        # Read the replication id before the slots. If it changes in between, the next refresh
        # detects that.
        replid, replicas = await read_replication(wire)
        try:
            text = await call_on(wire, "CLUSTER", "NODES")
        except CorruptData as exc:
            raise ConfigError(
                f"redis.cluster (CHAT_REDIS_CLUSTER): {address.name} is not a cluster: "
                f"{exc.message}"
            ) from exc
        return parse_view(
            text.decode(), address.host, replid=replid, replicas=replicas, by_name=address.is_tls
        )

    async def _open(self, node: ClusterNode) -> None:
        """Connect to a node.

        If its replication id is new, calls to it wait until `_switch_routes` has read its epochs.
        """
        wire = await open_connection(node.address, self.settings)
        async with handshake_deadline(wire, self.settings):
            await log_in(wire, node.address)
            await prepare(wire, self.settings)
            view = await self._query_view(wire, node.address)
        self._record_replication_id(node, view)
        node.wire = wire
        self.refresh_soon()

    def _record_replication_id(self, node: ClusterNode, view: ClusterView) -> None:
        """Store a node's replicas and replication id; if the id is new, hold calls to the node."""
        node.replicas = view.replicas
        if view.members[view.me].is_master:
            self._record_replicas(node.name, view.replicas)
        if view.replid == node.replid:
            return
        # `view` is the node's first reply to CLUSTER NODES with this replication id.
        node.replid, node.first_view, node.epoch_slots = view.replid, view, set()
        for route in self._routes.values():
            if route.node is node:
                route.hold()

    def _start_reconnects(self, node: ClusterNode) -> None:
        node.reconnect_task = asyncio.create_task(
            self._maintain_node(node), name=f"redis-{node.name}"
        )

    async def _maintain_node(self, node: ClusterNode) -> None:
        """Reconnect to a node whenever the connection is lost, with jitter, until cancelled."""
        wait_s = 0.05
        while True:
            if node.wire is not None:
                await asyncio.shield(node.wire.closed)
                node.wire = None
                log.warning("hot.connection_lost", redis=node.name)
                self.refresh_soon()
            try:
                await self._open(node)
            except ChatError as exc:
                log.warning("hot.connect_failed", redis=node.name, error=exc.message)
                await asyncio.sleep(add_jitter(wait_s))
                wait_s = min(wait_s * 2, RECONNECT_S_MAX)
            else:
                log.info("hot.connected", redis=node.name)
                wait_s = 0.05

    async def maintain_connection(self) -> None:
        """Refresh the cluster map until cancelled."""
        while True:
            wait_s = REFRESH_S if self._served == len(self._routes) else _REFRESH_DOWN_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(add_jitter(wait_s, 0.7)):
                    await self._refresh_requested.wait()
            self._refresh_requested.clear()
            try:
                failures = await self._refresh()
                for failure in () if self.blocked else failures:  # `_set_blocked` logs the block.
                    log.warning("hot.epoch_read_failed", redis=self.name, error=failure.message)
            except ChatError as exc:
                log.warning("hot.map_refresh_failed", redis=self.name, error=exc.message)
            await asyncio.sleep(_REFRESH_PAUSE_S)

    def get_keys_by_server(self) -> dict[str, str]:
        return {
            route.node.name: self.keys.epoch(route.partitions[0])
            for route in self._routes.values()
            if route.partitions and route.node is not None and route.wire is not None
        }

    def reload_epoch(self, partition: int) -> None:
        """Make the next refresh read the partition's epoch again; see `HotClient.reload_epoch`."""
        self._epoch_origins.pop(get_slot(self.keys.epoch(partition)), None)
        self.refresh_soon()

    async def close(self) -> None:
        tasks = [
            node.reconnect_task for node in self._nodes.values() if node.reconnect_task is not None
        ]
        for node in self._nodes.values():
            node.close("this process is stopping")
        for route in self._routes.values():
            route.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end_confirmations()

    # refreshing

    async def _refresh(self) -> list[ChatError]:
        """Read the slot owners and update the routes; return the errors that occurred."""
        views = await self._query_views()
        if not views:
            return []
        self._update_nodes(views.values())
        self._claims = SlotClaims(views.values())
        changed: list[tuple[SlotRoute, ClusterNode]] = []
        for route in list(self._routes.values()):
            node = self._find_owner(route.slot)
            if node is None or node.wire is None:
                route.set_node(node)
            elif route.partitions and self._epoch_origins.get(route.slot) != (node.id, node.replid):
                changed.append((route, node))
            else:
                route.set_node(node)
        failures = await self._switch_routes(changed, views)
        served = sum(route.is_ready and route.wire is not None for route in self._routes.values())
        if served > self._served and self._is_started:
            for callback in self.on_reload:
                callback()
        self._served = served
        return failures

    async def _query_views(self) -> dict[str, ClusterView]:
        """Return each master's reply to CLUSTER NODES, by node id.

        If no master responds, query other nodes.
        """
        nodes = [node for node in self._nodes.values() if node.wire is not None]
        queries = (
            self._query_view(node.wire, node.address) for node in nodes if node.wire is not None
        )
        views: dict[str, ClusterView] = {}
        for node, view in zip(
            nodes, await asyncio.gather(*queries, return_exceptions=True), strict=True
        ):
            if isinstance(view, ClusterView):
                self._record_replication_id(node, view)
                views[node.id] = view
            elif not isinstance(view, ChatError):
                raise view
        if views:
            return views
        addresses = [
            self.address,
            *random.sample(
                self._known_addresses, min(len(self._known_addresses), _ADDRESSES_TRIED_MAX)
            ),
        ]
        more_queries = (self._read_view_once(address) for address in addresses)
        replies = await asyncio.gather(*more_queries, return_exceptions=True)
        return {view.me: view for view in replies if isinstance(view, ClusterView)}

    def _update_nodes(self, views: Iterable[ClusterView]) -> None:
        members: dict[str, ClusterMember] = {}
        for view in views:
            for member in view.members.values():
                existing = members.get(member.id)
                if (
                    existing is None
                    or member.config_epoch > existing.config_epoch
                    or member.id == view.me
                ):
                    members[member.id] = member
        self._known_addresses = [
            self.address.at(m.host, m.port) for m in members.values() if m.port
        ]
        for member in members.values():
            node = self._nodes.get(member.id)
            if node is not None and node.node_address != member.address:
                node.close("the node has a new address")
                node = None
            if member.is_master and node is None and (member.slots or member.is_healthy):
                address = self.address.at(member.host, member.port)
                self._nodes[member.id] = ClusterNode(member, address)
                if self._is_started:
                    self._start_reconnects(self._nodes[member.id])
        for node in list(self._nodes.values()):
            now = members.get(node.id)
            if now is None or not now.is_master:
                del self._nodes[node.id]
                node.close("the node is no longer a master")

    @property
    def _is_started(self) -> bool:
        return any(node.reconnect_task is not None for node in self._nodes.values())

    # epochs

    async def _switch_routes(
        self, changed: Sequence[tuple[SlotRoute, ClusterNode]], views: dict[str, ClusterView]
    ) -> list[ChatError]:
        """Read epochs for the slots whose node or replication id is new; then send held calls.

        Return the errors that occurred.
        """
        changed = sorted(changed, key=lambda pair: 0 not in pair[0].partitions)
        for route, _ in changed:
            route.hold()
        outcomes = await self._load_all_epochs(changed, views)
        failures: list[ChatError] = []
        loaded: list[tuple[SlotRoute, ClusterNode]] = []
        is_new = False
        for (route, node), outcome in zip(changed, outcomes, strict=True):
            if isinstance(outcome, ChatError):
                failures.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                is_new = self._store_epochs(route, outcome) or is_new
                self._epoch_origins[route.slot] = (node.id, node.replid)
                node.epoch_slots.add(route.slot)
                loaded.append((route, node))
        if is_new:
            log.warning("hot.epoch_changed", redis=self.name)
            for callback in self.on_epoch:
                callback()
        for route, node in loaded:
            route.set_node(node)
        if is_new and self._is_started:
            for callback in self.on_reload:
                callback()
        return failures

    def _store_epochs(self, route: SlotRoute, epochs: Sequence[Epoch]) -> bool:
        """Store the epochs of a route's partitions; return True if any changed."""
        is_new = False
        for partition, epoch in zip(route.partitions, epochs, strict=True):
            is_new = is_new or self.epochs[partition] not in ("", epoch)
            self.epochs[partition] = epoch
        if is_new:
            route.fail_unsent()
        return is_new

    async def _load_all_epochs(
        self, changed: Sequence[tuple[SlotRoute, ClusterNode]], views: dict[str, ClusterView]
    ) -> list[list[Epoch] | BaseException]:
        """Return the epochs of each route, or the error. Check all settings before any write."""
        checked = await asyncio.gather(
            *(self._check_route(route, node) for route, node in changed), return_exceptions=True
        )
        refusal = next((error for error in checked if isinstance(error, ConfigError)), None)
        if refusal is not None:
            return [refusal for _ in changed]
        if self.is_read_only:
            return checked
        # As in `SingleClient`, partition 0 first when the epochs may not exist yet.
        stages = [changed] if self.epochs[0] else [changed[:1], changed[1:]]
        outcomes: list[list[Epoch] | BaseException] = []
        for stage in stages:
            loads = (self._load_epochs(route, node, views) for route, node in stage)
            outcomes += await asyncio.gather(*loads, return_exceptions=True)
            refusal = next((each for each in outcomes if isinstance(each, ConfigError)), None)
            if refusal is not None:
                return [refusal for _ in changed]
        return outcomes

    async def _check_route(self, route: SlotRoute, node: ClusterNode) -> list[Epoch]:
        if node.wire is None:
            raise Unavailable(f"redis at {node.name}: not connected", public=REDIS_DOWN)
        return await self._check_epochs(node.wire, route.partitions)

    async def _load_epochs(
        self, route: SlotRoute, node: ClusterNode, views: dict[str, ClusterView]
    ) -> list[Epoch]:
        wire, replid = node.wire, node.replid
        if wire is None:
            raise Unavailable(f"redis at {node.name}: not connected", public=REDIS_DOWN)
        origin = self._epoch_origins.get(route.slot, ("", ""))
        came_from = find_proven_origin(route.slot, node, origin, views)
        return await asyncio.gather(
            *(
                self._load_epoch(wire, partition, replid, came_from)
                for partition in route.partitions
            )
        )
