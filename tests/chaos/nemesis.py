"""Faults of a `FullStack` as actions of a script, one method each.

Each fault ends automatically after the milliseconds of its action. A target that is already broken
is skipped, so that the faults of one target never overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import psutil
import redis.asyncio

from chatserver.dev.servers import Server
from tests.chaos.actions import Actions
from tests.chaos.full_simulation import FullSimulation
from tests.chaos.full_stack import CLOCKS, LINKS, cut_log
from tests.chaos.simulation import Action
from tests.support.history.events import Lost
from tests.support.servers.tcp_proxy import Direction
from tests.support.stack import START_S, start_async

PROBE = "chaos:probe"  # a counter in Redis that shows whether recent writes were lost
Args = tuple[int, ...]
Draw = Callable[[random.Random], Args]


def _ms(low: int, high: int) -> Draw:
    return lambda rng: (rng.randint(low, high),)


def _link(low: int, high: int, *more: tuple[int, int]) -> Draw:
    def draw(rng: random.Random) -> Args:
        # The last link is between clients and gateways.
        return (
            rng.randrange(len(LINKS) + 1),
            rng.randint(low, high),
            *(rng.randint(*one) for one in more),
        )

    return draw


# The function that draws the arguments of each kind of fault.
FAULTS: dict[str, Draw] = {
    "kill_redis": _ms(0, 800),
    "cut_redis_log": lambda rng: (rng.randint(0, 500), rng.choice((200, 2_000, 12_000, 40_000))),
    "flush_redis": lambda _: (),
    "fill_redis": _ms(500, 2_500),
    "kill_dynamodb": _ms(0, 2_500),
    "kill_s3": _ms(0, 2_500),
    "delay_link": _link(300, 2_500, (5, 250)),
    "throttle_link": _link(300, 2_500, (4, 64)),
    "deafen_link": _link(300, 2_500, (0, 1)),
    "reset_link": lambda rng: (rng.randrange(len(LINKS) + 1),),
    "refuse_link": _link(300, 2_000),
    "pause_gateway": lambda rng: (rng.randrange(3), rng.randint(300, 4_000)),
    "pause_worker": lambda rng: (rng.randrange(5), rng.randint(300, 4_000)),
    "skew_clock": lambda rng: (
        rng.randrange(len(CLOCKS)),
        rng.randint(1_000, 4_000),
        rng.choice((-20, -5, 5, 20)),
    ),
    "kill_gateway": lambda rng: (rng.randrange(3),),
    "end_gateway": lambda rng: (rng.randrange(3),),
    "renew_gateways": lambda _: (),
    "kill_worker": lambda rng: (rng.randrange(5), rng.randint(0, 1_000)),
    "end_worker": lambda rng: (rng.randrange(5), rng.randint(0, 1_000)),
    "cut": lambda _: (),
}


class Nemesis(Actions):
    """Performs scripts with all kinds of faults; `counts` has the number of each."""

    def __init__(self, simulation: FullSimulation) -> None:
        super().__init__(simulation)
        self.counts: Counter[str] = Counter()
        self._full = simulation.full
        self._full_simulation = simulation
        self._broken: set[str] = set()

    async def perform(self, action: Action) -> None:
        """Start an action."""
        if action.name in FAULTS:
            self.counts[action.name] += 1
        await super().perform(action)

    @contextlib.asynccontextmanager
    async def _breaking(self, target: str) -> AsyncIterator[None]:
        self._broken.add(target)
        try:
            yield
        finally:
            self._broken.discard(target)

    def _spawn(self, target: str, work: Callable[[], Any]) -> None:
        if target in self._broken:
            return
        self._broken.add(target)

        async def run() -> None:
            async with self._breaking(target):
                await work()

        self._simulation.spawn(run(), f"fault of {target}")

    # Redis

    async def _do_kill_redis(self, pause_ms: int) -> None:
        server = self._full.stack.redis

        async def kill() -> None:
            async with self._redis() as client:
                written = await client.incr(PROBE)
            killed = self._simulation.now()
            await self._restart(server, pause_ms)
            # During a long fsync, Redis delays the replies of writes (AOF `everysec`).
            async with self._redis() as client:
                if int(await client.get(PROBE) or 0) < written:
                    self._record_loss("kill", killed)

        self._spawn("redis", kill)

    async def _do_cut_redis_log(self, pause_ms: int, size: int) -> None:
        server = self._full.stack.redis

        async def cut() -> None:
            server.kill()
            if cut_log(server.launch.folder, size):
                self._record_loss("cut log")
            await asyncio.sleep(pause_ms / 1000)
            await start_async(server)

        self._spawn("redis", cut)

    async def _do_flush_redis(self) -> None:
        async def flush() -> None:
            async with self._redis() as client:
                await client.ping()  # a flush takes milliseconds, so the time of the loss is known
                self._record_loss("flush")
                await client.flushall()

        self._spawn("redis", flush)

    async def _do_fill_redis(self, pause_ms: int) -> None:
        async def fill() -> None:
            async with self._redis() as client:
                used = (await client.info("memory"))["used_memory"]
                await client.config_set("maxmemory", used)
                await asyncio.sleep(pause_ms / 1000)
                await client.config_set("maxmemory", 0)

        self._spawn("redis", fill)

    def _redis(self) -> redis.asyncio.Redis:
        url = self._full.stack.redis_url
        return redis.asyncio.Redis.from_url(url, socket_timeout=60)

    def _record_loss(self, what: str, t: float | None = None) -> None:
        self._simulation.history.events.append(
            Lost(self._simulation.now() if t is None else t, what)
        )

    # other servers

    async def _do_kill_dynamodb(self, pause_ms: int) -> None:
        server = self._full.stack.dynamodb
        self._spawn("dynamodb", lambda: self._restart(server, pause_ms))

    async def _do_kill_s3(self, pause_ms: int) -> None:
        async def restart() -> None:
            await self._restart(self._full.s3, pause_ms)
            await self._full.apply_bucket()  # the S3 server forgets empty buckets when it restarts

        self._spawn("s3", restart)

    async def _restart(self, server: Server, pause_ms: int) -> None:
        server.kill()
        await asyncio.sleep(pause_ms / 1000)
        await start_async(server)

    # links

    def _link(self, which: int) -> tuple[str, Any]:
        if which == len(LINKS):
            return "clients", self._full_simulation.clients
        return LINKS[which], self._full.links[LINKS[which]]

    def _break_link(self, which: int, pause_ms: int, inject: Callable[[Any], None]) -> None:
        name, link = self._link(which)

        async def work() -> None:
            inject(link)
            await asyncio.sleep(pause_ms / 1000)
            link.end_faults()

        self._spawn(f"link {name}", work)

    async def _do_delay_link(self, which: int, pause_ms: int, latency_ms: int) -> None:
        self._break_link(which, pause_ms, lambda link: link.delay(latency_ms / 1000))

    async def _do_throttle_link(self, which: int, pause_ms: int, kilobytes_per_s: int) -> None:
        self._break_link(which, pause_ms, lambda link: link.throttle(kilobytes_per_s * 1024))

    async def _do_deafen_link(self, which: int, pause_ms: int, is_up: int) -> None:
        direction: Direction = "up" if is_up else "down"
        self._break_link(which, pause_ms, lambda link: link.blackhole(direction))

    async def _do_reset_link(self, which: int) -> None:
        self._link(which)[1].reset()

    async def _do_refuse_link(self, which: int, pause_ms: int) -> None:
        self._break_link(which, pause_ms, lambda link: link.refuse())

    # processes and clocks

    async def _do_pause_gateway(self, which: int, pause_ms: int) -> None:
        children = self._full.fleet.children
        if children:
            child = children[which % len(children)]
            self._spawn(f"gateway {child.pid}", lambda: self._pause(child.send_signal, pause_ms))

    async def _do_pause_worker(self, which: int, pause_ms: int) -> None:
        worker = list(self._full.stack.workers.values())[which]
        if worker.process is not None:
            process = psutil.Process(worker.process.pid)
            self._spawn(
                f"pause of {worker.launch.name}",
                lambda: self._pause(process.send_signal, pause_ms),
            )

    async def _pause(self, send: Callable[[int], None], pause_ms: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            send(signal.SIGSTOP)
        await asyncio.sleep(pause_ms / 1000)
        with contextlib.suppress(psutil.NoSuchProcess):
            send(signal.SIGCONT)

    async def _do_skew_clock(self, which: int, pause_ms: int, offset_s: int) -> None:
        clock = self._full.clocks[CLOCKS[which]]

        async def work() -> None:
            clock.set(offset_s)
            await asyncio.sleep(pause_ms / 1000)
            clock.set(0)

        self._spawn(f"clock {which}", work)

    async def _revive(self, worker: Any, pause_s: float) -> None:
        """Restart a worker, repeatedly if it exits because a server is still down."""
        self._full.restarting.add(worker.launch.name)
        try:
            await self._restart_worker(worker, pause_s)
        finally:
            self._full.restarting.discard(worker.launch.name)

    async def _restart_worker(self, worker: Any, pause_s: float) -> None:
        if worker.process is not None:
            await asyncio.to_thread(worker.stop)
        await asyncio.sleep(pause_s)
        give_up = time.monotonic() + START_S
        while True:
            try:
                await start_async(worker)
            except AssertionError:
                worker.process = None
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    # end of the run

    async def _do_quiesce(self) -> None:
        """Wait until all faults are over and the system is idle."""
        await self._full_simulation.quiesce()

    async def _do_list(self, user: int) -> None:
        """Read the chat list, including read marks."""
        self._simulation.spawn(self._full_simulation.first(user).list_marks(), "list")
