"""Faults of the simulated servers and processes as actions of a script, one method each.

A fault that lasts ends after the milliseconds of its action, or soon after the last user action. A
target that is already broken is skipped, so that the faults of one target never overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.chaos.actions import Actions
from tests.chaos.simulation import Action
from tests.simulation.cluster import Member
from tests.simulation.play import Play
from tests.support.history.events import Lost

Args = tuple[int, ...]
Draw = Callable[[random.Random], Args]
LINKS = (("gateway", "redis"), ("worker", "redis"), ("client", "gateway"))


def _draw(*bounds: tuple[int, int]) -> Draw:
    return lambda rng: tuple(rng.randint(*each) for each in bounds)


_LINK = (0, len(LINKS) - 1)
_ANY = (0, 40)
LAST_S = 1.0  # how long faults last after the last user action, at most
# The function that draws the arguments of each kind of fault.
FAULTS: dict[str, Draw] = {
    "kill_redis": _draw((0, 2_000)),
    "cut_redis_log": _draw((0, 2_000), (0, 100)),
    "fail_over_redis": _draw((0, 2_000), (0, 500)),
    "flush_redis": _draw(),
    "fill_redis": _draw((300, 3_000)),
    "stop_dynamodb": _draw((300, 5_000)),
    "fail_dynamodb": _draw((500, 5_000), (5, 60)),
    "slow_dynamodb": _draw((500, 5_000), (50, 1_500)),
    "stop_s3": _draw((300, 5_000)),
    "fail_s3": _draw((500, 5_000), (5, 60)),
    "delay_link": _draw(_LINK, (300, 4_000), (5, 400)),
    "throttle_link": _draw(_LINK, (300, 4_000), (4, 64)),
    "deafen_link": _draw(_LINK, (300, 6_000), (0, 1)),
    "reset_link": _draw(_LINK),
    "refuse_link": _draw(_LINK, (300, 3_000)),
    "pause_gateway": _draw(_ANY, (300, 8_000)),
    "pause_worker": _draw(_ANY, (300, 8_000)),
    "skew_clock": _draw(_ANY, (1_000, 6_000), (-60, 60)),
    "kill_gateway": _draw(_ANY, (0, 60)),
    "end_gateway": _draw(_ANY),
    "kill_worker": _draw(_ANY, (0, 60)),
    "end_worker": _draw(_ANY),
    "stop_push": _draw((300, 8_000)),
    "fail_push": _draw((300, 8_000), (5, 80)),
    "kill_api": _draw((0, 60)),
    "pause_api": _draw((300, 8_000)),
    "crash_device": _draw(_ANY),
    "cut": _draw(),
}


class SimulatedFaults(Actions):
    """Performs scripts with all kinds of faults; `counts` has the number of each."""

    def __init__(self, play: Play) -> None:
        super().__init__(play)
        self.counts: Counter[str] = Counter()
        self._play = play
        play.faults = FAULTS
        self._cluster = play.cluster
        self._broken: set[str] = set()
        self._end = asyncio.Event()  # of all faults

    async def perform(self, action: Action) -> None:
        """Start an action."""
        self._cluster.loop.trace.add(f"{self._play.now():.3f} {action.name} {action.args}")
        if action.name in FAULTS:
            self.counts[action.name] += 1
        await super().perform(action)

    def _break(
        self, target: str, pause_ms: int, start: Callable[[], Any], end: Callable[[], Any]
    ) -> None:
        """Break a target for a while, unless it is broken."""
        if target in self._broken:
            return
        self._broken.add(target)
        start()

        async def wait() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._end.wait()
            end()
            self._broken.discard(target)

        self._play.spawn(wait(), f"fault of {target}")

    # Redis

    def _record_loss(self, what: str) -> None:
        self._play.history.events.append(Lost(self._play.now(), what))

    async def _do_kill_redis(self, pause_ms: int) -> None:
        redis = self._cluster.redis
        self._break("redis", pause_ms, redis.crash, redis.start)

    async def _do_cut_redis_log(self, pause_ms: int, percent: int) -> None:
        redis = self._cluster.redis

        def crash() -> None:
            if redis.crash(len(redis.since_sync) * percent // 100):
                self._record_loss("cut log")

        self._break("redis", pause_ms, crash, redis.start)

    async def _do_fail_over_redis(self, pause_ms: int, lag_ms: int) -> None:
        """Promote a replica, without the primary's last writes."""
        redis = self._cluster.redis

        def fail_over() -> None:
            if redis.fail_over(lag_ms):
                self._record_loss("failover")

        self._break("redis", pause_ms, fail_over, redis.start)

    async def _do_flush_redis(self) -> None:
        if "redis" not in self._broken:
            self._record_loss("flush")
            self._cluster.redis.flush()

    async def _do_fill_redis(self, pause_ms: int) -> None:
        scripting = self._cluster.redis.scripting

        def set_full(is_full: bool) -> None:
            scripting.is_full = is_full
            self._cluster.has_been_full |= is_full

        self._break("memory", pause_ms, lambda: set_full(True), lambda: set_full(False))

    # DynamoDB

    def _break_dynamodb(self, pause_ms: int, name: str, value: Any) -> None:
        dynamodb = self._cluster.dynamodb
        self._break("dynamodb", pause_ms, lambda: setattr(dynamodb, name, value), dynamodb.repair)

    async def _do_stop_dynamodb(self, pause_ms: int) -> None:
        self._break_dynamodb(pause_ms, "is_down", True)

    async def _do_fail_dynamodb(self, pause_ms: int, percent: int) -> None:
        self._break_dynamodb(pause_ms, "failure_share", percent / 100)

    async def _do_slow_dynamodb(self, pause_ms: int, latency_ms: int) -> None:
        self._break_dynamodb(pause_ms, "latency_s", latency_ms / 1000)

    # S3

    async def _do_stop_s3(self, pause_ms: int) -> None:
        objects = self._cluster.objects
        self._break("s3", pause_ms, lambda: setattr(objects, "is_down", True), objects.repair)

    async def _do_fail_s3(self, pause_ms: int, percent: int) -> None:
        objects, share = self._cluster.objects, percent / 100
        self._break(
            "s3", pause_ms, lambda: setattr(objects, "failure_share", share), objects.repair
        )

    # push service

    async def _do_stop_push(self, pause_ms: int) -> None:
        pushes = self._cluster.pushes
        self._break("push", pause_ms, lambda: setattr(pushes, "is_down", True), pushes.repair)

    async def _do_fail_push(self, pause_ms: int, percent: int) -> None:
        pushes, share = self._cluster.pushes, percent / 100
        self._break(
            "push", pause_ms, lambda: setattr(pushes, "failure_share", share), pushes.repair
        )

    # links

    def _break_link(self, which: int, pause_ms: int, name: str, value: Any, *ways: int) -> None:
        kinds = LINKS[which]
        links = (self._cluster.network.link(*kinds), self._cluster.network.link(*kinds[::-1]))

        def start() -> None:
            for way in ways or (0, 1):
                setattr(links[way], name, value)

        def end() -> None:
            for link in links:
                link.repair()

        self._break(f"link {kinds}", pause_ms, start, end)

    async def _do_delay_link(self, which: int, pause_ms: int, latency_ms: int) -> None:
        self._break_link(which, pause_ms, "latency_s", latency_ms / 1000)

    async def _do_throttle_link(self, which: int, pause_ms: int, kilobytes_per_s: int) -> None:
        self._break_link(which, pause_ms, "bytes_per_s", kilobytes_per_s * 1024.0)

    async def _do_deafen_link(self, which: int, pause_ms: int, way: int) -> None:
        self._break_link(which, pause_ms, "is_deaf", True, way)

    async def _do_refuse_link(self, which: int, pause_ms: int) -> None:
        self._break_link(which, pause_ms, "is_refusing", True, 0)
        self._cluster.network.reset(set(LINKS[which]))

    async def _do_reset_link(self, which: int) -> None:
        self._cluster.network.reset(set(LINKS[which]))

    async def _do_cut(self) -> None:
        """Reset the connections of about a quarter of the clients."""
        self._cluster.network.reset({"client", "gateway"}, share=0.25)

    # processes

    def _choose(self, kind: str, which: int) -> Member:
        members = self._cluster.of_kind(kind)
        return members[which % len(members)]

    async def _do_kill_gateway(self, which: int, callbacks: int = 0) -> None:
        self._kill(self._choose("gateway", which), callbacks)

    async def _do_kill_worker(self, which: int, callbacks: int = 0) -> None:
        self._kill(self._choose("worker", which), callbacks)

    def _kill(self, member: Member, callbacks: int) -> None:
        if member.process.is_paused or not callbacks:
            member.kill()
        elif not member.process.is_dead:
            member.kill_after(callbacks)

    async def _do_end_gateway(self, which: int) -> None:
        self._choose("gateway", which).end()

    async def _do_end_worker(self, which: int, pause_ms: int = 0) -> None:
        self._choose("worker", which).end()

    async def _do_kill_api(self, callbacks: int) -> None:
        self._kill(self._choose("api", 0), callbacks)

    async def _do_pause_api(self, pause_ms: int) -> None:
        self._pause(self._choose("api", 0), pause_ms)

    async def _do_pause_gateway(self, which: int, pause_ms: int) -> None:
        self._pause(self._choose("gateway", which), pause_ms)

    async def _do_pause_worker(self, which: int, pause_ms: int) -> None:
        self._pause(self._choose("worker", which), pause_ms)

    def _pause(self, member: Member, pause_ms: int) -> None:
        process, loop = member.process, self._cluster.loop
        self._break(
            f"pause {process.name}",
            pause_ms,
            lambda: loop.pause(process, is_paused=True),
            lambda: loop.pause(process, is_paused=False),
        )

    async def _do_skew_clock(self, which: int, pause_ms: int, offset_s: int) -> None:
        members = list(self._cluster.members.values())
        process = members[which % len(members)].process

        def skew(seconds: float) -> None:
            process.skew_s = seconds

        self._break(f"clock {process.name}", pause_ms, lambda: skew(offset_s), lambda: skew(0.0))

    async def _do_crash_device(self, which: int) -> None:
        """Reset the connection of one device."""
        devices = self._play.sdk()
        self._cluster.network.reset_process(devices[which % len(devices)].name)

    # the user of the HTTP API

    async def _do_write_by_api(self, count: int) -> None:
        """Send messages as the user who is erased later."""
        if (erased := self._play.erased) is not None:
            self._play.spawn(erased.write(count), "write by API")

    async def _do_erase(self) -> None:
        if (erased := self._play.erased) is not None:
            self._play.spawn(erased.erase(), "erase")

    # end of the run

    async def _do_quiesce(self) -> None:
        """Wait until all faults are over and the system is idle."""
        asyncio.get_running_loop().call_later(LAST_S, self._end.set)
        await self._play.quiesce()

    async def _do_list(self, user: int) -> None:
        """Read the chat list, including read marks."""
        self._play.spawn(self._play.first(user).list_marks(), "list")
