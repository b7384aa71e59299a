"""CPU of the gateway's code for one message, from the bytes of the `send` to those of the push.

Real classes from the connection to the script call. Sockets, the event loop and Redis are replaced
by the least that works, so nothing but Python is measured. Each tick receives 1, 4 or 16 messages
of as many direct chats, whose two users are on this gateway.

    python -m tests.benchmarks.send_path [--ticks 2000] [--profile]
    CHATSERVER_PURE_PYTHON=1 python -m tests.benchmarks.send_path
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import time
from collections.abc import Callable
from typing import Any, cast

import click
from pydantic import SecretStr
from websockets.protocol import State
from websockets.speedups import apply_mask

from chatserver.config import Auth, Settings
from chatserver.container.gateway import GatewayContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, DeviceId, Epoch, Seq, UserId
from chatserver.gateway.process.server import GatewayServer
from chatserver.gateway.session.command_handler import CommandHandler
from chatserver.gateway.transport.connection import Connection, Phase
from chatserver.hot.chats.audiences import make_audience
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.wire import OnReply

EPOCH = Epoch("01JZ0000000000000000000000")
TICK_SIZES = (1, 4, 16)
MASK = b"\x37\xfa\x21\x3d"
ROUNDS = 5


class Loop:
    """An event loop that runs only what was scheduled for the end of the tick."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self.soon.append((call, args))

    def call_later(self, _: float, call: Callable[..., object], *args: Any) -> Timer:
        return Timer()

    def time(self) -> float:
        return time.monotonic()

    def run(self) -> None:
        """Run what is scheduled, and what that schedules."""
        while self.soon:
            soon, self.soon = self.soon, []
            for call, args in soon:
                call(*args)

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast(Any, self))


class Timer:
    """A timer that never fires."""

    def cancel(self) -> None:
        """There is nothing to cancel."""


class Transport:
    """A socket that keeps what was written last."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written = data

    def get_write_buffer_size(self) -> int:
        return 0


class Hot(HotClient):
    """Redis that answers every commit as `accept.lua` answers new messages."""

    is_ordered = True
    is_up = True

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.epochs = [EPOCH] * settings.partitions
        self.calls: list[OnReply] = []

    def send(self, on_reply: OnReply, *args: Any) -> None:
        self.calls.append(on_reply)

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError

    _send_and_wait = blocking_client = connect = keep_connected = _refuse
    keys_by_server = doubt = close = _refuse


Hot.__abstractmethods__ = frozenset()


class Pair:
    """A direct chat of two live sessions."""

    def __init__(self, server: GatewayServer, container: GatewayContainer, number: int) -> None:
        self.number = number
        self.users = [UserId(f"user{number:04d}a"), UserId(f"user{number:04d}b")]
        self.chat = ChatId(f"d_{number:022d}")
        head = {
            b"gate": f"{EPOCH}:1".encode(), b"kind": b"direct", b"seq": b"1", b"done": b"1",
        }  # fmt: skip
        members = {user.encode(): b"member:1" for user in self.users}
        audience = make_audience(container.hot.keys, self.chat, EPOCH, head, members)
        container.audiences._remember(audience)
        self.sessions = [self._open(server, container, user) for user in self.users]
        self.sender = self.sessions[0]
        self.seq = 1
        self.sent = 0

    def _open(
        self, server: GatewayServer, container: GatewayContainer, user: UserId
    ) -> tuple[Connection, Transport, CommandHandler]:
        connection, transport = Connection(server), Transport()
        connection._transport = cast(Any, transport)
        connection.phase = Phase.OPEN
        connection._ws.state = State.OPEN
        handler = CommandHandler(
            context=server._context,
            connection=connection,
            directory=server._directory,
            admission=server._admission,
            on_authenticated=lambda _: None,
            on_end=lambda _: None,
        )
        connection._receiver = handler
        session = handler.session
        session.user, session.device = user, DeviceId("phone")
        session.activity = container.user_presence.create_activity(is_foreground=True)
        for name in ("sends", "requests", "memory"):
            allowance = container.limits.find(cast(Any, name), user)
            allowance.tokens = 1 << 60
            setattr(
                handler, "_others_allowed" if name == "requests" else f"_{name}_allowed", allowance
            )
        server.registry.add(user, session)
        session.state.hello()
        session.state.welcome(EPOCH, Seq(1))
        session.go_live(Seq(1))
        return connection, transport, handler

    def frame(self) -> bytes:
        """Return the next masked `send` frame of the first user, about 200 bytes."""
        self.sent += 1
        text = (
            b'{"type":"send","id":%d,"chat":"%b","ref":"%08d%08d","body":"%b"}'
            % (self.sent, self.chat.encode(), self.number, self.sent, b"x" * 100)
        )  # fmt: skip
        length = len(text)
        header = b"\x81%c" % (0x80 | length) if length < 126 else b"\x81\xfe" + length.to_bytes(2)
        return header + MASK + apply_mask(text, MASK)

    def place(self) -> tuple[int, int]:
        self.seq += 1
        return self.seq, 1_700_000_000_000_000 + self.seq


def run_ticks(
    loop: Loop, hot: Hot, pairs: list[Pair], ticks: list[list[tuple[Connection, bytes]]]
) -> None:
    replies: list[list[Any]] = []
    for _ in ticks:
        reply: list[Any] = []
        for pair in pairs:
            seq, ts = pair.place()
            reply += [1, 1, seq, ts, seq, seq, 0]
        replies.append(reply)
    for frames, reply in zip(ticks, replies, strict=True):
        for connection, data in frames:
            connection.data_received(data)
        loop.run()
        calls, hot.calls = hot.calls, []
        (on_reply,) = calls
        on_reply(reply)
        loop.run()


def measure(count: int, ticks_count: int, profile: bool) -> float:
    """Return the µs of CPU per message, the least of some rounds."""
    loop = Loop()
    asyncio._set_running_loop(cast(Any, loop))
    settings = Settings(auth=Auth(secret=SecretStr("s" * 32)))
    hot = Hot(settings.redis)
    server = GatewayServer(settings)
    container = GatewayContainer(
        settings=settings,
        clock=SystemClock(),
        hot=hot,
        gateway=server.gateway,
        make_notifier=server.make_router,
    )
    server.use(container)
    pairs = [Pair(server, container, number) for number in range(count)]
    best = 0.0
    profiler = cProfile.Profile()
    gc.disable()
    for round_ in range(ROUNDS):
        ticks = [[(pair.sender[0], pair.frame()) for pair in pairs] for _ in range(ticks_count)]
        begin = time.process_time()
        if profile and round_ == ROUNDS - 1:
            profiler.enable()
        run_ticks(loop, hot, pairs, ticks)
        profiler.disable()
        spent = (time.process_time() - begin) * 1e6 / (ticks_count * count)
        best = spent if not best else min(best, spent)
    gc.enable()
    for pair in pairs:
        ack = pair.sender[1].written
        assert b'"type":"ack"' in ack and b'"type":"event"' in ack, ack
        assert b'"type":"event"' in pair.sessions[1][1].written
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(35)
    asyncio._set_running_loop(None)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=2000)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    click.echo("messages in a tick   µs of CPU per message")
    for count in TICK_SIZES:
        click.echo(
            f"{count:18d}   {measure(count, options.ticks // count + 50, options.profile):.1f}"
        )


if __name__ == "__main__":
    main()
