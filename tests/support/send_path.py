"""The gateway's send path without sockets, event loop and Redis: bytes in, bytes out.

The classes from the connection to the script call are real. `Loop`, `Transport` and `Hot` replace
their environment by minimal stubs.

    python -m tests.support.send_path SEEDS STEPS

prints the bytes that random sequences of frames and of Redis replies make the gateway write. Two
builds of the hot modules must print the same.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, cast

import hiredis
from pydantic import SecretStr
from websockets.protocol import State
from websockets.speedups import apply_mask

from chatserver.config import Auth, Settings
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, DeviceId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.messages import format_ref_record
from chatserver.gateway.process.wiring import GatewayProcess
from chatserver.gateway.session.command_handler import CommandHandler
from chatserver.gateway.transport.connection import Connection, Phase
from chatserver.hot.chats.audience_cache import make_audience
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import OnReply

EPOCH = Epoch("01JZ0000000000000000000000")
TS = 1_700_000_000_000_000
MASK = b"\x37\xfa\x21\x3d"


class Loop:
    """An event loop that runs only what was scheduled for the end of the tick."""

    def __init__(self) -> None:
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self._soon.append((call, args))

    def call_later(self, _: float, call: Callable[..., object], *args: Any) -> Timer:
        return Timer()

    def create_task(self, work: Any, **_: Any) -> Task:
        work.close()
        return Task()

    def time(self) -> float:
        return time.monotonic()

    def run(self) -> None:
        """Run the scheduled calls, and the calls that these schedule."""
        while self._soon:
            soon, self._soon = self._soon, []
            for call, args in soon:
                call(*args)


class Timer:
    """A timer that never fires."""

    def cancel(self) -> None:
        """Do nothing."""


class Task:
    """A task that never runs."""

    def add_done_callback(self, call: object) -> None:
        """Do nothing: the task never ends."""


class Transport:
    """A socket that buffers written data until `pop_written`."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._written.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing."""

    def pop_written(self) -> bytes:
        """Return what was written since the last call."""
        written, self._written = b"".join(self._written), []
        return written


class Hot(HotClient):
    """Redis whose calls wait until the caller sends the replies."""

    is_ordered = True
    is_up = True

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.epochs = [EPOCH] * settings.partitions
        self.calls: list[tuple[OnReply, tuple[Any, ...]]] = []

    def send(self, on_reply: OnReply, *args: Any) -> None:
        self.calls.append((on_reply, args))

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError

    _send_and_wait = create_blocking_client = connect = maintain_connection = _refuse
    get_keys_by_server = reload_epoch = close = _refuse


Hot.__abstractmethods__ = frozenset()


class Device:
    """A live session of a user."""

    def __init__(self, process: GatewayProcess, user: UserId) -> None:
        self.user = user
        self.connection, self.transport = Connection(process.server), Transport()
        self.connection._transport = cast(Any, self.transport)
        self.connection.phase = Phase.OPEN
        self.connection._ws.state = State.OPEN
        handler: Any = CommandHandler(
            context=process.session_context,
            connection=self.connection,
            directory=process.session_registration,
            admission=process.admission,
            on_authenticated=lambda _: None,
            on_end=lambda _: None,
        )
        self.connection._receiver = handler
        session = handler.session
        session.user, session.device = user, DeviceId("phone")
        session.activity = process.user_presence.create_activity(is_foreground=True)
        for name, kind in (("sends", "sends"), ("others", "requests"), ("memory", "memory")):
            allowance = process.limits.find(cast(Any, kind), user)
            allowance.tokens = 1 << 60
            setattr(handler, f"_{name}_allowed", allowance)
        process.local_sessions.add(user, session)
        session.state.hello()
        session.state.welcome(EPOCH, Seq(1))
        session.go_live(Seq(1))

    def receive(self, text: bytes) -> None:
        """Handle a masked text frame of the client."""
        self.connection.data_received(mask(text))


class Pair:
    """A direct chat of two users with one device each.

    `seq` is the seq of the chat and both inboxes.
    """

    def __init__(self, process: GatewayProcess, number: int) -> None:
        users = [UserId(f"user{number:04d}a"), UserId(f"user{number:04d}b")]
        self.chat = ChatId(f"d_{number:022d}")
        head = {
            b"gate": f"{EPOCH}:1".encode(), b"kind": b"direct", b"seq": b"1", b"done": b"1",
        }  # fmt: skip
        members = {user.encode(): b"member:1" for user in users}
        audience = make_audience(process.hot.keys, self.chat, EPOCH, head, members)
        process.audiences._add_to_cache(audience)
        self.devices = [Device(process, user) for user in users]
        self.seq = 1

    def place(self) -> tuple[int, int]:
        """Return seq and ts of the next message."""
        self.seq += 1
        return self.seq, TS + self.seq


class World:
    """A gateway with some direct chats."""

    def __init__(self, pairs: int) -> None:
        self.loop = Loop()
        asyncio._set_running_loop(cast(Any, self.loop))
        settings = Settings(auth=Auth(secret=SecretStr("s" * 32)))
        self.hot = Hot(settings.redis)
        process = GatewayProcess(
            settings=settings, clock=SystemClock(), hot=self.hot, gateway=GatewayId("gateway1")
        )
        self.pairs = [Pair(process, number) for number in range(pairs)]

    def pop_calls(self) -> list[tuple[OnReply, tuple[Any, ...]]]:
        """Return the calls to Redis that have no reply yet."""
        calls, self.hot.calls = self.hot.calls, []
        return calls

    def close(self) -> None:
        asyncio._set_running_loop(None)


def mask(text: bytes) -> bytes:
    """Return a client's text frame."""
    length = len(text)
    header = b"\x81%c" % (0x80 | length) if length < 126 else b"\x81\xfe" + length.to_bytes(2)
    return header + MASK + apply_mask(text, MASK)


# a random sequence

_BODIES = (b"hi", b"x" * 300, b"caf\\u00e9 \\n", "тест 🙂".encode(), b"", b"a\\u0000b", b"y" * 4001)
_EXTRAS = (b"", b"", b"", b',"reply_to":1', b',"expires_s":60', b',"expires_s":0', b',"kind":"gif"')
_OTHERS = (
    b'{"type":"dance","id":9}',
    b'{"type":"send","id":9}',
    b'{"type":"send","id":9,"chat":"?","ref":"r","body":"b"}',
    b'{"type":"state","state":"bg"}',
)
# Result codes of commit_messages.lua after which no chat must be loaded again.
_OUTCOMES = ("committed", "committed", "committed", "known", "full", "chat_full", "restrained", "")


def run_random(seed: int, steps: int) -> None:
    """Print what the gateway writes."""
    rng, numbers = random.Random(seed), itertools.count(1)
    world = World(3)
    for step in range(steps):
        sent: list[Pair] = []
        for _ in range(rng.randrange(1, 6)):
            pair = rng.choice(world.pairs)
            device = rng.choice(pair.devices)
            if rng.random() < 0.1:
                device.receive(rng.choice(_OTHERS))
                continue
            number = next(numbers)
            text = b'{"type":"send","id":%d,"chat":"%b","ref":"r%d","body":"%b"%b}' % (
                number, pair.chat.encode(), number, rng.choice(_BODIES), rng.choice(_EXTRAS),
            )  # fmt: skip
            data = mask(text)
            cut = rng.randrange(len(data)) if rng.random() < 0.2 else 0
            for part in (data[:cut], data[cut:]):
                if part:
                    device.connection.data_received(part)
            sent.append(pair)
        world.loop.run()
        for on_reply, call in world.pop_calls():
            sys.stdout.write(f"{step} call {call!r}\n")
            is_commit = isinstance(call[0], bytes)
            on_reply(make_reply(world, rng, call[0]) if is_commit else 1)
        world.loop.run()
        for pair in world.pairs:
            for device in pair.devices:
                if written := device.transport.pop_written():
                    sys.stdout.write(f"{step} {device.user} {written!r}\n")
    world.close()


def make_reply(world: World, rng: random.Random, call: bytes) -> list[Any]:
    """Return a reply of commit_messages.lua to a call, with random outcomes."""
    reply: list[Any] = []
    reader = hiredis.Reader()
    reader.feed(call)
    values = reader.gets()
    for at, value in enumerate(values):
        pair = next((each for each in world.pairs if value == each.chat.encode()), None)
        if pair is None:
            continue
        reply.append(1)
        first = pair.seq + 1
        count = 0
        for _ in range(int(values[at + 3])):
            match rng.choice(_OUTCOMES):
                case "committed":
                    count += 1
                    reply += [1, *pair.place()]
                case "known":
                    reply += [3, format_ref_record(1, TS, "m" * 26, rng.choice(["", "00000000"]))]
                case "full":
                    reply.append(6)
                case "chat_full":
                    reply.append(8)
                case "restrained":
                    reply += [7, rng.choice([1, 2, 3, 4]), rng.choice([0, 1500])]
                case _:
                    reply.append(9)
        if count:
            reply += [b"0-%d" % first, b"0-%d" % first, 0]
    return reply


def main() -> None:
    """Run with clocks and random numbers that are the same in each process."""
    warnings.simplefilter("ignore")  # these tasks never run
    counter = itertools.count(1)
    os.urandom = lambda size: next(counter).to_bytes(size, "big")
    time.time = lambda: TS / 1e6
    time.monotonic = lambda: 1000.0
    for seed in range(int(sys.argv[1])):
        run_random(seed, int(sys.argv[2]))


if __name__ == "__main__":
    main()
