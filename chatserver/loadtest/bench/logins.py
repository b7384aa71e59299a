"""Logins: rate, and CPU cost and DynamoDB calls per `hello`.

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
import contextlib
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import click
import redis as redis_py
import uvloop
from pydantic import SecretStr

from chatserver.auth.tokens import Tokens
from chatserver.config import Auth
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.loadtest.bench.dynamodb_stub import COUNTS, STORED_USER
from chatserver.loadtest.bench.run_options import prepare_process
from chatserver.loadtest.bench.server_stack import (
    Placement,
    Stack,
    build_dynamodb_stub,
    get_pid,
    run_chat_stack,
)
from chatserver.loadtest.bench.session import RunFindings, Session
from chatserver.loadtest.machine import read_cpu_s
from chatserver.protocol.frames import SUBPROTOCOL

_TOKEN_LIFETIME_S = 3000
_SETTLE_S = 0.5
_CONNECTS_MAX = 8  # With more concurrent connects, some would take a second longer (SYN retries).
_BACK_S_MAX = 300.0


class LoginSession(Session):
    """A session that signals when it has received `reset`, which follows a data loss in Redis."""

    def __init__(self, user: str, findings: RunFindings) -> None:
        super().__init__(user, findings)
        self.reset = asyncio.Event()

    def _handle_text(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "reset":
            self.reset.set()
        elif frame["type"] != "event":
            super()._handle_text(frame)


class Bench:
    def __init__(self, stack: Stack, in_flight: int) -> None:
        self._stack = stack
        self._in_flight = in_flight
        self._tokens = Tokens(Auth(secret=SecretStr(stack.secret)), SystemClock())
        assert stack.redis is not None and stack.rpc is not None
        self._pids = {
            "gateway": get_pid(stack.gateways[0]),
            "rpc": get_pid(stack.rpc),
            "redis": get_pid(stack.redis),
        }
        self.findings = RunFindings()

    async def log_in(self, users: list[str]) -> tuple[dict[str, Any], list[LoginSession]]:
        slots, connects = asyncio.Semaphore(self._in_flight), asyncio.Semaphore(_CONNECTS_MAX)
        took_s: list[float] = []

        async def log_in_one(user: str) -> LoginSession:
            token = self._tokens.issue(UserId(user), _TOKEN_LIFETIME_S)
            async with slots:
                session = LoginSession(user, self.findings)
                async with connects:
                    await session.connect(self._stack.gateways[0].port, SUBPROTOCOL)
                start_s = time.perf_counter()
                await session.authenticate(token)
                took_s.append(time.perf_counter() - start_s)
                return session

        cpu, calls, start_s = self._read_cpu_times(), self.count_calls(), time.perf_counter()
        sessions = await asyncio.gather(*map(log_in_one, users))
        figures = self._build_figures(len(users), time.perf_counter() - start_s, cpu, calls)
        took_s.sort()
        figures["hello_ms_p50"] = round(took_s[len(took_s) // 2] * 1000, 1)
        figures["hello_ms_p99"] = round(took_s[len(took_s) * 99 // 100] * 1000, 1)
        return figures, list(sessions)

    async def erase_redis(self, sessions: list[LoginSession]) -> dict[str, Any]:
        """Delete all Redis data; return the time and CPU cost until all sessions have `reset`."""
        assert self._stack.redis is not None
        cpu, calls, start_s = self._read_cpu_times(), self.count_calls(), time.perf_counter()
        with redis_py.Redis(port=self._stack.redis.port) as client:
            client.flushall()
        async with asyncio.timeout(_BACK_S_MAX):
            await asyncio.gather(*(session.reset.wait() for session in sessions))
        return self._build_figures(len(sessions), time.perf_counter() - start_s, cpu, calls)

    async def close(self, sessions: list[LoginSession]) -> None:
        """Close sessions, and wait until the gateway has removed them."""
        for session in sessions:
            session.close()
        last = -1.0
        while (now := self._read_cpu_times()["gateway"]) - last > _SETTLE_S / 10:
            last = now
            await asyncio.sleep(_SETTLE_S)

    def _read_cpu_times(self) -> dict[str, float]:
        return {role: read_cpu_s(pid) for role, pid in self._pids.items()}

    def count_calls(self) -> dict[str, int]:
        request = urllib.request.Request(  # noqa: S310  the stub
            self._stack.env["CHAT_WARM_ENDPOINT"], b"{}", {"X-Amz-Target": f"stub.{COUNTS}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  the stub
            counts: dict[str, int] = json.load(response)
        return counts

    def _build_figures(
        self, logins: int, took_s: float, cpu: dict[str, float], calls: dict[str, int]
    ) -> dict[str, Any]:
        used = {role: now - cpu[role] for role, now in self._read_cpu_times().items()}
        new_calls = {name: count - calls.get(name, 0) for name, count in self.count_calls().items()}
        return {
            "logins": logins,
            "seconds": round(took_s, 2),
            "logins_per_second": round(logins / took_s),
            "cpu_ms_per_login": {role: round(s * 1000 / logins, 3) for role, s in used.items()},
            "dynamodb_calls_per_login": {
                name: round(count / logins, 2) for name, count in new_calls.items() if count
            },
        }


async def _run(stack: Stack, users: int, lost_sessions: int, in_flight: int) -> dict[str, Any]:
    bench, result = Bench(stack, in_flight), dict[str, Any]()
    await bench.close((await bench.log_in([f"warmup{n}" for n in range(50)]))[1])
    assert sum(bench.count_calls().values()), "the rpc worker is not running; see its log"
    phases = {"first": f"{STORED_USER}%d", "next": f"{STORED_USER}%d", "new": "new%d"}
    for phase, name in phases.items():
        result[phase], sessions = await bench.log_in([name % n for n in range(users)])
        await bench.close(sessions)
    if lost_sessions:
        _, sessions = await bench.log_in([f"{STORED_USER}{n}" for n in range(lost_sessions)])
        result["lost"] = await bench.erase_redis(sessions)
        await bench.close(sessions)
    count_violations = bench.findings.count_violations()
    assert not count_violations, (count_violations, bench.findings.examples)
    return result


@click.command(help=__doc__)
@click.option(
    "--users",
    default=2000,
    show_default=True,
    type=click.IntRange(100),
    help="Users per phase.",
)
@click.option("--chats", default=5, show_default=True, help="Chats per stored user.")
@click.option(
    "--restricted",
    is_flag=True,
    help="Set the flag `restricted` of users, so that a first login also queries blocks and ended"
    " logins (there are none).",
)
@click.option("--in-flight", default=256, show_default=True, help="Concurrent logins.")
@click.option(
    "--lost-sessions",
    default=0,
    show_default=True,
    help="Sessions that are connected when Redis loses its data; 0: skip this phase.",
)
@click.option(
    "--runs", default=1, show_default=True, type=click.IntRange(1, 20), help="Number of runs."
)
@click.option("--server-core", default=0, show_default=True, help="CPU core to pin the servers to.")
@click.option(
    "--load-core", default=1, show_default=True, help="CPU core to pin the load generator to."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all results to this file as JSON.",
)
def logins(
    users: int,
    chats: int,
    restricted: bool,
    in_flight: int,
    lost_sessions: int,
    runs: int,
    server_core: int,
    load_core: int,
    out: Path | None,
) -> None:
    prepare_process(load_core)
    results = []
    for run in range(runs):
        with contextlib.ExitStack() as exits:
            folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
            arguments = ["--chats", str(chats), *(["--restricted"] if restricted else [])]
            stub = build_dynamodb_stub(folder / "stub", arguments)
            placement = Placement(server_core, load_core)
            stack = exits.enter_context(run_chat_stack(placement, folder, stub))
            results.append(uvloop.run(_run(stack, users, lost_sessions, in_flight)))
        for phase, figures in results[-1].items():
            click.echo(f"run {run + 1}, {phase}: {json.dumps(figures)}")
    if out is not None:
        out.write_text(json.dumps(results, indent=2))
