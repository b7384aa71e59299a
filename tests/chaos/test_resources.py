"""Exhausted resources of a stack: the disk of Redis, and the file descriptors of a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import resource
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.conftest import PATIENT
from tests.support.deadlines import open_process
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually, eventually_equal, redis_client
from tests.support.stack import Stack, open_stack, start_async
from tests.support.wire import Ended, RawSocket, Refused

DEADLINE_S = 60.0
AOF_ROOM_BYTES = 2_000
STRACE = shutil.which("strace")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One gateway, and a Redis that keeps running when its files cannot grow, as on a full disk."""
    folder = tmp_path_factory.mktemp("resources")
    with open_stack(folder, fsync="everysec", env=PATIENT) as made:
        launch = made.redis.launch
        argv = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh", *launch.argv]
        made.redis.kill()
        made.redis.launch = dataclasses.replace(launch, argv=argv)
        made.redis.start()
        yield made


@pytest.fixture(autouse=True)
async def running_redis(stack: Stack) -> None:
    """Restart Redis if the previous test stopped it."""
    process = stack.redis.process
    if process is None or process.poll() is not None:
        stack.redis.kill()
        await start_async(stack.redis)

    async def is_served() -> bool:
        return (await readiness_of(stack))[0] == 200

    await eventually(is_served, DEADLINE_S, "the gateway is ready")


@contextlib.contextmanager
def full_disk(stack: Stack) -> Iterator[None]:
    """Limit the growth of Redis's files to a small amount."""
    size = max(path.stat().st_size for path in stack.redis.launch.folder.rglob("*.aof"))
    pid = redis_of(stack).pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + AOF_ROOM_BYTES, hard))
    yield
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextlib.contextmanager
def broken_disk(stack: Stack) -> Iterator[None]:
    """Let every fsync of Redis fail."""
    assert STRACE is not None
    pid = str(redis_of(stack).pid)
    inject = "inject=fdatasync,fsync:error=EIO"
    # strace can stay attached to a dead Redis and then ignores SIGTERM, so it is killed.
    with open_process(
        [STRACE, "-f", "-qq", "-p", pid, "-e", inject, "-o", "/dev/null"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as tracer:
        _wait_until_traced(pid, tracer)
        yield


def _wait_until_traced(pid: str, tracer: subprocess.Popen[bytes]) -> None:
    """Wait until strace is attached; skip the test if the system forbids it."""
    give_up = time.monotonic() + DEADLINE_S
    while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
        if psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE:
            return  # strace was attached; the first failing fsync ended Redis
        if tracer.poll() is not None:
            pytest.skip("strace may not attach here")
        assert time.monotonic() < give_up, "strace did not attach"
        time.sleep(0.02)


needs_strace = pytest.mark.skipif(STRACE is None, reason="needs strace")
faults = pytest.mark.parametrize(
    "fault", [full_disk, pytest.param(broken_disk, marks=needs_strace)]
)
Fault = Callable[[Stack], contextlib.AbstractContextManager[None]]


def redis_of(stack: Stack) -> psutil.Process:
    """Return the Redis process."""
    assert stack.redis.process is not None
    return psutil.Process(stack.redis.process.pid)


async def readiness_of(stack: Stack) -> tuple[int, bytes]:
    """Return status and text of the gateway's /readyz."""
    async with await RawSocket.connect(stack.port) as ws:
        await ws.write(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
        response = await ws.read_response()
    return response.status, response.body


@contextlib.asynccontextmanager
async def pair_on(stack: Stack, name: str) -> AsyncIterator[tuple[RawChat, RawChat, str]]:
    """Open two users' devices and their chat."""
    users = (f"alice-{name}", f"bob-{name}")
    await stack.add_users(users)
    async with stack.chat_of(users[0]) as alice, stack.chat_of(users[1]) as bob:
        yield alice, bob, await alice.open_direct(bob.user)


async def send_until_refused(device: RawChat, chat: str) -> tuple[list[str], Failed]:
    """Send until refused; return the acked bodies and the refusal."""
    acked: list[str] = []
    give_up = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up:
        body = f"{len(acked)} " + "x" * 100
        try:
            await device.send(chat, body)
        except Failed as exc:
            return acked, exc
        acked.append(body)
        await asyncio.sleep(0.01)  # Redis checks a failing disk once a second
    raise AssertionError("nothing was refused")


async def is_sent(device: RawChat, chat: str, body: str) -> bool:
    """Send with a fixed ref; return False while it is refused temporarily."""
    try:
        await device.send(chat, body, ref=body)
    except Failed as exc:
        assert exc.is_temporary, exc
        return False
    return True


@faults
async def test_full_or_failing_disk_refuses_sends_and_serves_reads(
    stack: Stack, fault: Fault
) -> None:
    """Sends are `unavailable`, /readyz reports the cause, history works, all recovers."""
    async with pair_on(stack, fault.__name__) as (alice, bob, chat):
        with fault(stack):
            acked, refusal = await send_until_refused(alice, chat)
            assert (refusal.code, refusal.is_temporary) == ("unavailable", True)
            assert "Redis does not accept writes" in str(refusal)

            async def reports_cause() -> bool:
                status, text = await readiness_of(stack)
                return status == 503 and b"Redis does not accept writes" in text

            await eventually(reports_cause, DEADLINE_S)
            assert [row["body"] for row in (await bob.read_page(chat))["messages"]][-1:] == acked[
                -1:
            ]

        await eventually(lambda: is_sent(alice, chat, "again"), DEADLINE_S)
        rows = await bob.read_final(chat)
        assert [row.body for row in rows if row.body != "again"] == acked

        await eventually_equal(
            lambda: readiness_of(stack), 200, of=lambda found: found[0], deadline_s=DEADLINE_S
        )


@faults
async def test_redis_exit_on_disk_error_loses_no_acked_message(stack: Stack, fault: Fault) -> None:
    """With AOF `always`, Redis exits on the first disk error.

    Gateways wait for it and keep running.
    """
    gateway = stack.gateways[0].process
    async with pair_on(stack, f"{fault.__name__}-always") as (alice, bob, chat):
        await alice.send(chat, "before")
        with redis_client(stack.redis_url) as admin:
            admin.config_set("appendfsync", "always")
        process = redis_of(stack)
        with fault(stack):
            acked, refusal = await send_until_refused(alice, chat)
            await eventually(lambda: not process.is_running() or process.status() == "zombie")
        assert refusal.is_temporary
        stack.redis.kill()
        await start_async(stack.redis)

        await eventually(lambda: is_sent(alice, chat, "again"), DEADLINE_S)
        bodies = [row.body for row in await bob.read_final(chat)]
        assert set(acked) <= set(bodies)
        assert gateway is not None
        assert gateway.poll() is None


async def test_gateway_without_file_descriptors_serves_connected_clients_and_recovers(
    stack: Stack,
) -> None:
    """New clients wait or are rejected; connected ones are unaffected; CPU use stays low."""
    process = stack.gateways[0].process
    assert process is not None
    gateway = psutil.Process(process.pid)
    async with pair_on(stack, "files") as (alice, bob, chat), contextlib.AsyncExitStack() as held:
        _, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
        limits = (gateway.num_fds() + 4, hard)
        soft, _ = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, limits)
        try:
            for _ in range(40):
                with contextlib.suppress(OSError, Ended):
                    await held.enter_async_context(await RawSocket.connect(stack.port))
            before, began = gateway.cpu_times(), time.monotonic()
            for number in range(20):
                await alice.send(chat, f"m{number}")
                await asyncio.sleep(0.05)
            after, took = gateway.cpu_times(), time.monotonic() - began
            used = after.user + after.system - before.user - before.system
            await bob.expect_bodies(chat, [f"m{number}" for number in range(20)], DEADLINE_S)
            assert used < 0.7 * took, f"{used:.2f} s of CPU in {took:.2f} s"
        finally:
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (soft, hard))
        await held.aclose()

        async def can_connect() -> bool:
            try:
                async with stack.chat_of(alice.user, device="new"):
                    return True
            except (OSError, Ended, Refused, TimeoutError):
                return False

        await eventually(can_connect, DEADLINE_S)
