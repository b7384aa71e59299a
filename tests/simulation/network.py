"""In-memory network: streams of bytes between processes, with delays and faults.

A connection consists of two `Endpoint` transports. Each direction delivers its data in order, after
a delay drawn from the seed. The delay and faults of a direction are those of its link, which is
selected by the kinds of the two processes:

- `latency_s`: additional delay.
- `is_deaf`: data waits until the link is repaired, as with lost packets.
- `bytes_per_s`: throttled.
- `is_refusing`: new connections are refused.

`Network.reset` ends the connections of a link; data in transit is lost. The death of a process
closes its connections: data that it has already sent still arrives. An endpoint has at most
`BUFFER_BYTES` of undelivered data before its protocol must pause, as with a full socket buffer.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import Process, get_process, make_context
from tests.simulation.sockets import Server, Socket

BUFFER_BYTES = 65_536
DELAY_S = (0.000_05, 0.000_6)  # delay of a healthy link
FIRST_CLIENT_PORT = 20_000
SPLIT_SHARE = 0.01  # share of the deliveries that arrive in two parts


class Link:
    """Condition of the network between processes of two kinds, in one direction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.repair()

    def repair(self) -> None:
        """End all faults."""
        self.latency_s = 0.0
        self.is_deaf = False
        self.bytes_per_s = 0.0
        self.is_refusing = False


class Endpoint(asyncio.Transport):
    """One side of a connection."""

    def __init__(
        self, network: Network, process: Process, address: tuple[str, int], link: Link
    ) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.process = process
        self.address = address
        self.link = link  # of the data that this side sends
        self.peer: Endpoint
        self.peer_address = ("", 0)
        self._protocol: Any = None
        self._is_buffered = False
        self._context: contextvars.Context = make_context(process)
        # received
        self._received: deque[bytes] = deque()  # data, or b"" for the end of the stream
        self._is_reading_paused = False
        self._is_delivery_scheduled = False
        # sent
        self._in_transit: deque[tuple[float, bytes]] = deque()
        self._outstanding = 0  # bytes that the peer's protocol has not received
        self._last_arrival = 0.0
        self._high = BUFFER_BYTES
        self._is_writing_paused = False
        self._is_closing = False
        self._is_eof_sent = False
        self._is_lost = False

    # setup

    def start(self, protocol: Any) -> None:
        """Attach a protocol, in its process's context."""
        self.set_protocol(protocol)
        self._loop.call_soon(self._connect, context=self._context)

    def _connect(self) -> None:
        if not self._is_lost:
            self._protocol.connection_made(self)
            self._deliver_soon()

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "peername":
                return self.peer_address
            case "sockname":
                return self.address
            case "socket":
                return Socket(self)
            case _:
                return default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_reading_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = BUFFER_BYTES + (65_536 if high is None else high)

    def get_write_buffer_size(self) -> int:
        return max(0, self._outstanding - BUFFER_BYTES)

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_eof_sent or self.process.is_dead or not data:
            return
        self._transmit(bytes(data))
        self._outstanding += len(data)
        if self._outstanding > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_eof_sent and not self._is_closing:
            self._is_eof_sent = True
            self._transmit(b"")

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_eof_sent:
            self._is_eof_sent = True
            self._transmit(b"")
        self._loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        self.close()

    # transmission

    def _transmit(self, data: bytes) -> None:
        """Send data, or the end of the stream if it is empty."""
        network, link, loop, peer = self._network, self.link, self._loop, self.peer
        network.trace.data(self.process.name, peer.process.name, data)
        if peer.process.is_dead:
            self._in_transit.clear()
            if data:
                network.call_at(loop.now + DELAY_S[1], self.reset)
            return
        if link.bytes_per_s:
            self._last_arrival += len(data) / link.bytes_per_s
        earliest = loop.now + DELAY_S[0] + link.latency_s
        if self._last_arrival < earliest or not self._in_transit:
            arrival = earliest + network.draw() * (DELAY_S[1] - DELAY_S[0])
            if arrival > self._last_arrival:
                self._last_arrival = arrival
            loop.add_timer(self._last_arrival, peer._arrive, (), peer._context)
        # Otherwise, it arrives together with the data before it.
        self._in_transit.append((self._last_arrival, data))

    def _arrive(self) -> None:
        """Receive the data that is due; this runs in the receiver's process."""
        sender = self.peer
        if sender.link.is_deaf:
            # Try again when the link may have been repaired: TCP repeats lost packets.
            self._loop.add_timer(self._loop.now + 0.2, self._arrive, (), self._context)
            return
        now, in_transit, received = self._loop.now, sender._in_transit, self._received
        while in_transit and in_transit[0][0] <= now:
            data = in_transit.popleft()[1]
            if not self._is_closing:
                received.append(data)
            elif data and self._is_lost:
                in_transit.clear()
                self._network.call_at(now + DELAY_S[1], sender.reset)
                return
        if received and self._protocol is not None and not self._is_delivery_scheduled:
            self._deliver()

    def _deliver_soon(self) -> None:
        if self._received and self._protocol is not None and not self._is_delivery_scheduled:
            self._is_delivery_scheduled = True
            self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        self._is_delivery_scheduled = False
        received = self._received
        if self._is_closing:
            received.clear()
        if self._is_reading_paused or not received:
            return
        data = received.popleft()
        if data:
            if received and received[0]:
                parts = [data]
                while received and received[0]:
                    parts.append(received.popleft())
                data = b"".join(parts)
            if len(data) > 1 and self._network.draw() < SPLIT_SHARE:
                at = 1 + int(self._network.draw() * (len(data) - 1))
                received.appendleft(data[at:])
                data = data[:at]
            self.peer._acknowledge(len(data))
            if self._is_buffered:
                buffer = self._protocol.get_buffer(len(data))
                buffer[: len(data)] = data
                self._protocol.buffer_updated(len(data))
            else:
                self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self.close()
        if received and not self._is_reading_paused:
            self._deliver_soon()

    def _acknowledge(self, size: int) -> None:
        self._outstanding -= size
        if self._is_writing_paused and self._outstanding <= self._high // 4:
            self._is_writing_paused = False
            self._loop.call_soon(self._resume_writing, context=self._context)

    def _resume_writing(self) -> None:
        if not self._is_lost and not self._is_writing_paused:
            self._protocol.resume_writing()

    def reset(self) -> None:
        """End this side with an error, as after a TCP reset."""
        if self._is_lost or self.process.is_dead:
            return
        self._is_closing = True
        self._in_transit.clear()
        error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self._loop.call_soon(self._lose, error, context=self._context)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)


class Network:
    """All listeners, links and open connections."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        loop.network = self
        self.rng = loop.rng
        self.draw = loop.rng.random
        self.trace = loop.trace
        self._listeners: dict[int, list[Any]] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._endpoints: dict[Endpoint, None] = {}
        self._context = contextvars.copy_context()
        self._ports = FIRST_CLIENT_PORT

    def call_at(self, when: float, callback: Callable[..., object]) -> None:
        """Call a function at a virtual time, outside of any process."""
        self.loop.add_timer(when, callback, (), self._context)

    def link(self, source: str, target: str) -> Link:
        """Return the link from processes of one kind to those of another."""
        key = (source, target)
        if key not in self._links:
            self._links[key] = Link(f"{source} > {target}")
        return self._links[key]

    def repair_all(self) -> None:
        for link in self._links.values():
            link.repair()

    # listeners

    def add_listener(self, port: int, listener: Any) -> None:
        self._listeners.setdefault(port, []).append(listener)
        listener.process.on_death.append(lambda: self.remove_listener(port, listener))

    def remove_listener(self, port: int, listener: Any) -> None:
        if listener in self._listeners.get(port, ()):
            self._listeners[port].remove(listener)

    def listen(self, factory: Callable[[], Any], host: Any, port: int) -> Server:
        """Open a server that accepts immediately."""
        return Server(self, port, factory)

    # connections

    async def connect(
        self, factory: Callable[[], Any], host: Any, port: int
    ) -> tuple[Endpoint, Any]:
        """Connect to a port; see `asyncio.loop.create_connection`."""
        future: asyncio.Future[Endpoint] = self.loop.create_future()
        process = get_process()
        self.call_at(
            self.loop.now + self.rng.uniform(*DELAY_S),
            lambda: self._handle_syn(process, port, future),
        )
        endpoint = await future
        protocol = factory()
        endpoint.start(protocol)
        started = self.loop.create_future()
        self.loop.call_soon(_complete, started)
        await started
        return endpoint, protocol

    def _handle_syn(self, process: Process, port: int, future: asyncio.Future[Endpoint]) -> None:
        if future.done() or process.is_dead:
            return
        listeners = self._listeners.get(port, ())
        listener = listeners[int(self.rng.random() * len(listeners))] if listeners else None
        if listener is None:
            # The kind of the missing server is unknown; only its machine responds.
            self._fail(process, future)
            return
        there, back = (
            self.link(process.kind, listener.process.kind),
            self.link(listener.process.kind, process.kind),
        )
        if there.is_refusing:
            self._fail(process, future)
            return
        if there.is_deaf or back.is_deaf:
            self.call_at(self.loop.now + 0.2, lambda: self._handle_syn(process, port, future))
            return
        self._ports += 1
        client = Endpoint(self, process, ("10.0.0.2", self._ports), there)
        server = Endpoint(self, listener.process, ("10.0.0.1", port), back)
        client.peer, server.peer = server, client
        client.peer_address, server.peer_address = server.address, client.address
        for endpoint in (client, server):
            self._endpoints[endpoint] = None
            endpoint.process.on_death.append(endpoint.abort)
        listener.put(server)
        delay_s = self.rng.uniform(*DELAY_S) + there.latency_s + back.latency_s
        self.call_at(self.loop.now + delay_s, lambda: _give(future, client))

    def _fail(self, process: Process, future: asyncio.Future[Endpoint]) -> None:
        def fail() -> None:
            if not future.done():
                future.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))

        self.call_at(self.loop.now + self.rng.uniform(*DELAY_S), fail)

    async def attach(self, factory: Callable[[], Any], sock: Socket) -> tuple[Endpoint, Any]:
        """Attach a protocol to an accepted socket."""
        protocol = factory()
        sock.endpoint.start(protocol)
        return sock.endpoint, protocol

    def forget(self, endpoint: Endpoint) -> None:
        self._endpoints.pop(endpoint, None)
        if endpoint.abort in endpoint.process.on_death:
            endpoint.process.on_death.remove(endpoint.abort)

    def reset(self, kinds: set[str], share: float = 1.0) -> None:
        """Reset the connections, or a share of them, between processes of two kinds."""
        for endpoint in list(self._endpoints):
            is_client = endpoint.address[1] >= FIRST_CLIENT_PORT
            is_between = {endpoint.process.kind, endpoint.peer.process.kind} == kinds
            if is_client and is_between and self.rng.random() < share:
                endpoint.reset()
                endpoint.peer.reset()

    def reset_process(self, name: str) -> None:
        """Reset all connections of a process."""
        for endpoint in list(self._endpoints):
            if endpoint.process.name == name:
                endpoint.reset()
                endpoint.peer.reset()

    def count(self) -> int:
        return len(self._endpoints)


def _give(future: asyncio.Future[Endpoint], endpoint: Endpoint) -> None:
    if future.done():
        endpoint.abort()
    else:
        future.set_result(endpoint)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
