"""Logins: rate, and CPU cost and DynamoDB calls per `hello`.

    python -m tests.benchmarks.logins [--users 2000] [--chats 5] [--restricted] [--in-flight 256]
        [--lost-sessions N] [--out F.json]

A first login is the login of a user whose state is not in Redis: a new user, or any user after
Redis has lost its data. Three phases with the same number of users are measured: first logins of
users that exist in DynamoDB, the next logins of these users, and first logins of new users.

With `--lost-sessions N`, N users then stay online, and all data in Redis is deleted. The time until
all sessions have received `reset` is measured.

DynamoDB is a stub, so the server processes are the limit. Gateway and Redis share one core. The
`rpc` worker, the stub and the load generator share another, so the rate is a lower bound.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from typing import Any

import click

from chatserver.loadtest.delivery_checker import Findings
from tests.benchmarks.support.checked_sessions import Session
from tests.benchmarks.support.dynamodb_stub import COUNTS, STORED_USER
from tests.benchmarks.support.harness import Bench, benchmark
from tests.benchmarks.support.measurements import Figures, summarize_ms
from tests.benchmarks.support.pinned_stack import PinnedStack
from tests.support.servers.processes import redis_client

WARMUP_USERS = 50
CONNECTS_MAX = 8  # With more concurrent connects, some would take a second longer (SYN retries).
BACK_S_MAX = 300.0


class LoginSession(Session):
    """A session that signals when it has received `reset`, which follows a data loss in Redis."""

    def __init__(self, user: str, findings: Findings) -> None:
        super().__init__(user, findings)
        self.reset = asyncio.Event()

    def _handle_text(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "reset":
            self.reset.set()
        elif frame["type"] != "event":
            super()._handle_text(frame)


class Logins:
    """Logs users in and out, and measures the costs."""

    def __init__(self, pinned: PinnedStack, in_flight: int, findings: Findings) -> None:
        self._stack, self._cpu = pinned.stack, pinned.create_meter()
        self._in_flight, self._findings = in_flight, findings

    async def log_in(self, users: list[str]) -> tuple[Figures, list[LoginSession]]:
        slots, connects = asyncio.Semaphore(self._in_flight), asyncio.Semaphore(CONNECTS_MAX)
        took_s: list[float] = []

        async def log_in_one(user: str) -> LoginSession:
            token = self._stack.token(user)
            async with slots:
                session = LoginSession(user, self._findings)
                async with connects:
                    await session.open(self._stack.port)
                start_s = time.perf_counter()
                await session.authenticate(token)
                took_s.append(time.perf_counter() - start_s)
                return session

        calls, end = self.count_calls(), self._cpu.start(lambda: len(took_s))
        sessions = await asyncio.gather(*map(log_in_one, users))
        figures = {**end(), **self._compare_calls(calls, len(users)), "hello": summarize_ms(took_s)}
        return figures, sessions

    async def erase_redis(self, sessions: list[LoginSession]) -> Figures:
        """Delete all Redis data; return the time and CPU cost until all sessions have `reset`."""
        end = self._cpu.start(lambda: sum(session.reset.is_set() for session in sessions))
        calls = self.count_calls()
        with redis_client(self._stack.redis_url) as client:
            client.flushall()
        async with asyncio.timeout(BACK_S_MAX):
            await asyncio.gather(*(session.reset.wait() for session in sessions))
        return {**end(), **self._compare_calls(calls, len(sessions))}

    async def close(self, sessions: list[LoginSession]) -> None:
        """Close sessions, and wait until the gateway has removed them."""
        for session in sessions:
            session.close()
        while True:
            end = self._cpu.start(lambda: 0)
            await asyncio.sleep(0.5)
            if end()["cpu_share"]["gateway"] <= 0.1:
                return

    def count_calls(self) -> dict[str, int]:
        request = urllib.request.Request(
            self._stack.dynamodb.endpoint, b"{}", {"X-Amz-Target": f"stub.{COUNTS}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            counts: dict[str, int] = json.load(response)
        return counts

    def _compare_calls(self, before: dict[str, int], logins: int) -> Figures:
        new = {name: count - before.get(name, 0) for name, count in self.count_calls().items()}
        each = {name: round(count / logins, 2) for name, count in new.items() if count}
        return {"dynamodb_calls_each": each}


@benchmark(
    click.option("--users", default=2000, show_default=True, help="Users per phase."),
    click.option("--chats", default=5, show_default=True, help="Chats per stored user."),
    click.option(
        "--restricted",
        is_flag=True,
        help="Set the flag `restricted` of users, so that a first login also queries blocks and "
        "ended logins (there are none).",
    ),
    click.option("--in-flight", default=256, show_default=True, help="Concurrent logins."),
    click.option("--lost-sessions", default=0, show_default=True, help="0: skip this phase."),
)
async def main(
    bench: Bench, users: int, chats: int, restricted: bool, in_flight: int, lost_sessions: int
) -> Figures:
    flags = ["--restricted"] if restricted else []
    pinned = PinnedStack(bench, stub=["--chats", str(chats), *flags])
    pinned.start_gateway()
    logins, figures = Logins(pinned, in_flight, bench.findings), Figures()
    await logins.close((await logins.log_in([f"warmup{n}" for n in range(WARMUP_USERS)]))[1])
    assert logins.count_calls(), "the rpc worker is not running; see its log"
    phases = {"first": f"{STORED_USER}%d", "next": f"{STORED_USER}%d", "new": "new%d"}
    for phase, name in phases.items():
        figures[phase], sessions = await logins.log_in([name % n for n in range(users)])
        await logins.close(sessions)
    if lost_sessions:
        _, sessions = await logins.log_in([f"{STORED_USER}{n}" for n in range(lost_sessions)])
        figures["lost"] = await logins.erase_redis(sessions)
        await logins.close(sessions)
    return figures


if __name__ == "__main__":
    main()
