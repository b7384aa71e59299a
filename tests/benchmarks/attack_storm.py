"""Latency for a normal user during seven concurrent attacks, compared with a calm period.

    python -m tests.benchmarks.attack_storm [--calm 50] [--storm 60] [--half-open 3000]
        [--images 15] [--flooders 200] [--out F.json]

Starts Redis, DynamoDB, S3, a gateway, an API and workers with the default limits. A second process
then holds half-open requests at the API and the gateway from 30 addresses, guesses an account's
password 110 times in parallel from 110 networks, has 32 users create groups of 256 without end,
two users turn progressive JPEGs into thumbnails and upload files without end, one user search for
many phrases in long messages, and 200 new accounts of four networks fill Redis, which has only
`ROOM_BYTES` left. Meanwhile a bystander sends and deletes messages, reads history, blocks users,
logs in and opens direct chats at a fixed rate. Measures the latency of each request, in the calm
period and in the storm.

Real attackers have their own machines. Here they share the cores of the servers, so their
process has a low priority: the benchmark measures the work that they cause, not their own work.
The bystander has a separate process too. All data are on a RAM disk if it is large enough, because
the servers would otherwise wait for the emulated DynamoDB, which writes synchronously to its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec

from chatserver import config
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.dev.servers import ACCESS_KEY, SECRET_KEY, Server, ministack_launch
from chatserver.process_runtime import make_parent_death_hook
from tests.benchmarks.support import harness
from tests.benchmarks.support.attackers import CREATES, Targets
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.benchmarks.support.measurements import summarize_ms
from tests.support.deadlines import EXIT_S, wait_for_exit
from tests.support.rawchat import Failed
from tests.support.servers.processes import free_port, redis_client
from tests.support.stack import Stack, open_stack

PASSWORD = "correct horse battery"
WORKERS = (("persist", "repair"), ("rpc",), ("media",), ("search",))
PEERS = 600
OPENERS = 12
MEMBERS = 255
# Requests per second.
RATES = {
    "send": 20.0,
    "history": 10.0,
    "open_direct": 5.0,
    "login": 2.0,
    "block": 2.0,
    "delete": 2.0,
}
ROOM_BYTES = 40_000_000  # of Redis memory when the storm begins
RAM_DISK_BYTES_MIN = 2_000_000_000


@dataclasses.dataclass(frozen=True)
class Size:
    """Duration and size of a storm."""

    # Long enough that the 99th percentile is not the maximum.
    calm_s: float = 50.0
    storm_s: float = 60.0
    half_open: int = 3000
    images: int = 15  # per image attacker
    flooders: int = 200  # accounts that fill Redis


@dataclasses.dataclass
class Result:
    """Latencies in seconds by phase and request, wrong responses, and counts of attacks."""

    latencies: dict[str, dict[str, list[float]]] = dataclasses.field(default_factory=dict)
    wrong: list[str] = dataclasses.field(default_factory=list)
    attacks: dict[str, int] = dataclasses.field(default_factory=dict)
    memory_share: float = 0.0  # of Redis at the end


class Bystander:
    """A normal user who makes requests at a fixed rate.

    Several accounts take turns, because one account would exceed its rate limits.
    """

    def __init__(self, stack: Stack, api: Server, result: Result) -> None:
        self.user = "bystander"
        self._device = stack.chat_of(self.user)
        self._openers = [stack.chat_of(f"{self.user}-{number}") for number in range(OPENERS)]
        self._api = api
        self._result = result
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        self._messages, self._peers, self._turns, self._blocks, self._deletes = (
            itertools.count() for _ in range(5)
        )
        self._sent: list[int] = []  # seqs of messages that are not deleted
        names = (self.user, f"{self.user}-0")
        self._logins = [{"user": name, "password": PASSWORD} for name in names]
        self.chat = ""

    async def start(self) -> None:
        """Register, connect and open a chat."""
        url = f"{self._api.endpoint}/v1/auth/register"
        for login in self._logins:
            async with self._http.post(url, json=login) as answer:
                assert answer.status == 201, await answer.text()
                login["device_token"] = (await answer.json())["device_token"]
        for device in (self._device, *self._openers):
            await device.start()
        self.chat = (await self._device.request("open_direct", user="friend"))["chat"]["chat"]
        await self._device.send(self.chat, "hello")

    async def stop(self) -> None:
        """Disconnect."""
        for device in (self._device, *self._openers):
            await device.stop()
        await self._http.close()

    async def run(self, phase: str, seconds: float) -> None:
        """Make all requests for some seconds; record latencies and wrong responses."""
        actions: dict[str, Callable[[], Awaitable[None]]] = {
            "send": self._send,
            "history": self._read,
            "open_direct": self._open,
            "login": self._log_in,
            "block": self._block,
            "delete": self._delete,
        }
        latencies: dict[str, list[float]] = {name: [] for name in actions}
        self._result.latencies[phase] = latencies
        await asyncio.gather(
            *(
                self._repeat(phase, name, action, seconds, latencies[name])
                for name, action in actions.items()
            )
        )

    async def _repeat(
        self,
        phase: str,
        name: str,
        action: Callable[[], Awaitable[None]],
        seconds: float,
        latencies: list[float],
    ) -> None:
        begin = time.perf_counter()
        for number in range(int(seconds * RATES[name])):
            # Requests are sequential: a slow response delays the next request.
            await asyncio.sleep(max(0.0, begin + number / RATES[name] - time.perf_counter()))
            started = time.perf_counter()
            if started > begin + seconds:
                return
            try:
                await action()
            except (Failed, AssertionError, TimeoutError, aiohttp.ClientError) as exc:
                self._result.wrong.append(f"{phase} {name}: {exc!r}"[:300])
            latencies.append(time.perf_counter() - started)

    async def _send(self) -> None:
        ack = await self._device.send(self.chat, f"message {next(self._messages)}")
        assert ack["type"] == "ack", ack
        self._sent.append(ack["seq"])

    async def _block(self) -> None:
        # Block a user, then unblock the user.
        number = next(self._blocks)
        kind = "unblock" if number % 2 else "block"
        answer = await self._device.request(kind, user=f"peer-{number // 2 % PEERS}")
        assert answer["type"] == "ok", answer

    async def _delete(self) -> None:
        while not self._sent:
            await asyncio.sleep(0.01)
        ref = f"delete-{next(self._deletes)}"
        fields = {"chat": self.chat, "seq": self._sent.pop(), "ref": ref, "for": "all"}
        answer = await self._device.request("delete", **fields)
        assert answer["type"] == "ack", answer

    async def _read(self) -> None:
        page = await self._device.request("history", chat=self.chat, limit=50)
        assert page["type"] == "page" and page["messages"], page

    async def _open(self) -> None:
        # A new chat each time, because opening an existing chat costs almost nothing.
        number = next(self._peers)
        opener = self._openers[number % OPENERS]
        answer = await opener.request("open_direct", user=f"peer-{number % PEERS}")
        assert answer["type"] == "ok", answer

    async def _log_in(self) -> None:
        url = f"{self._api.endpoint}/v1/auth/login"
        login = self._logins[next(self._turns) % len(self._logins)]
        async with self._http.post(url, json=login) as answer:
            granted = await answer.json()
            assert answer.status == 200, granted
            login["device_token"] = granted.get("device_token", login["device_token"])


def _limits() -> dict[str, str]:
    """Return the default limits instead of those that the test stack sets."""
    return {f"CHAT_LIMITS_{name}".upper(): str(value) for name, value in config.Limits()}


@contextlib.asynccontextmanager
async def _open_servers(folder: Path, env: dict[str, str]) -> AsyncIterator[tuple[Stack, Server]]:
    s3 = Server(ministack_launch(folder / "s3", free_port(), service="s3"))
    try:
        s3.start()
        cold = {
            "endpoint": s3.endpoint,
            "bucket": "storm",
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "call_timeout_s": "30",
        }
        settings = config.Cold.model_validate(cold)
        async with open_s3(settings) as store:
            await apply_bucket(store, settings)
        variables = {f"CHAT_COLD_{name}".upper(): value for name, value in cold.items()}
        variables["CHAT_SEARCH_INDEX"] = str(folder / "index")
        all_variables = {**_limits(), **variables, **env}
        with open_stack(folder, workers=WORKERS, fsync="everysec", env=all_variables) as stack:
            yield stack, stack.start_api(CHAT_AUTH_COOKIE_SECURE="false")
    finally:
        s3.kill()


async def run_storm(folder: Path, size: Size, **env: str) -> Result:
    """Measure a bystander before and during a storm."""
    result = Result()
    async with _open_servers(folder, env) as (stack, api):
        members = [f"member-{number}" for number in range(MEMBERS)]
        hostile = [f"hostile-{number}" for number in range(CREATES)]
        peers = [f"peer-{number}" for number in range(PEERS)]
        flooders = [f"flooder-{number}" for number in range(size.flooders)]
        groups = (["friend", "victim", *hostile], members, peers, flooders)
        await asyncio.gather(*(stack.add_users(group) for group in groups))
        bystander = Bystander(stack, api, result)
        try:
            await bystander.start()
            target = Targets(
                api=api.port,
                gateway=stack.port,
                victim="victim",
                half_open=size.half_open,
                tokens={user: stack.token(user) for user in hostile},
                members=members,
                images=size.images,
                flooders={user: stack.token_of_new_account(user) for user in flooders},
            )
            async with _attacker(target) as (begin, end):
                await bystander.run("calm", size.calm_s)
                with redis_client(stack.redis_url) as redis:
                    used = redis.info("memory")["used_memory"]
                    redis.config_set("maxmemory", used + ROOM_BYTES)
                await begin()
                await bystander.run("storm", size.storm_s)
                result.attacks = await end()
                with redis_client(stack.redis_url) as redis:
                    info = redis.info("memory")
                result.memory_share = info["used_memory"] / info["maxmemory"]
        finally:
            await bystander.stop()
    return result


@contextlib.asynccontextmanager
async def _attacker(
    target: Targets,
) -> AsyncIterator[tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[Any]]]]:
    """Run the attackers in a process; yield functions that begin and end the storm."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.benchmarks.support.attackers",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        start_new_session=True,  # see `lower_process_priority`
        preexec_fn=make_parent_death_hook(),
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    async def begin() -> None:
        stdin.write(b"begin\n")
        await stdin.drain()

    async def end() -> Any:
        stdin.close()
        return json.loads(await asyncio.wait_for(stdout.readline(), EXIT_S))

    try:
        stdin.write(msgspec.json.encode(target) + b"\n")
        line = await asyncio.wait_for(stdout.readline(), EXIT_S)
        assert line == b"prepared\n", "the process of the attackers ended"
        yield begin, end
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await wait_for_exit(process)


def compare(result: Result) -> Figures:
    """Return the latencies of each request, and the ratio of the p99 in the storm to the calm."""
    figures = Figures()
    for name, calm in result.latencies["calm"].items():
        phases = {
            "calm": summarize_ms(calm),
            "storm": summarize_ms(result.latencies["storm"][name]),
        }
        p99s = [each.get("p99_ms", math.nan) for each in phases.values()]
        figures[name] = {**phases, "p99_ratio": round(p99s[1] / p99s[0], 1)}
    return figures


def options() -> Iterator[Callable[[Any], Any]]:
    """Yield an option for each field of `Size`."""
    for field in dataclasses.fields(Size):
        name = field.name.removesuffix("_s").replace("_", "-")
        yield click.option(f"--{name}", field.name, default=field.default, show_default=True)


@benchmark(*options())
async def main(bench: Bench, **sizes: Any) -> Figures:
    ram_disk = Path("/dev/shm")
    folder = bench.folder
    if ram_disk.is_dir() and shutil.disk_usage(ram_disk).free > RAM_DISK_BYTES_MIN:
        folder = Path(tempfile.mkdtemp(prefix="chatserver-storm-", dir=ram_disk))
        bench.on_exit(lambda: shutil.rmtree(folder))
    result = await run_storm(folder, Size(**sizes), **harness.SETTINGS)
    for line in result.wrong:
        bench.findings.add("wrong", line)
    share = {"redis_memory_share": round(result.memory_share, 2)}
    return {**compare(result), "attacks": result.attacks, **share}


if __name__ == "__main__":
    main()
