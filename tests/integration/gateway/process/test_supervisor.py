"""Several gateway processes on one port: restart, rolling replacement and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from chatserver.dev.ports import is_port_free
from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, UserId
from chatserver.domain.inboxes import Delivery
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.inbox import Inboxes
from tests.integration.hot.support import redis_settings
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually, free_port, is_running
from tests.support.stack import Fleet, NewName, Stack, read_metric, start_async
from tests.support.wire import Ended, RawSocket, Refused

pytestmark = pytest.mark.timeout(400)  # each test starts several processes, some repeatedly

SHUTDOWN = 3000
END_DEADLINE_S = 60.0  # a drain of 3 s, on a slow machine
START_DEADLINE_S = 90.0  # several processes start one after another


@pytest.fixture(scope="session")
def metrics_port() -> int:
    """The first of two ports. The port before it is unused."""
    return free_port(3) + 1


@pytest.fixture(scope="session")
def fleet(stack: Stack, metrics_port: int) -> Iterator[Fleet]:
    """Two processes on one port, shared by tests that leave two running."""
    made = stack.add_fleet(2, CHAT_TELEMETRY_METRICS_PORT=str(metrics_port))
    made.start()
    yield made
    made.kill()
    stack.gateways.remove(made)


@pytest.fixture
async def stopped_fleet(stack: Stack) -> AsyncIterator[Fleet]:
    """Two processes on one port for a test that stops them."""
    made = stack.add_fleet(2)
    await start_async(made)
    yield made
    made.kill()
    stack.gateways.remove(made)


async def http_get(port: int, path: str) -> tuple[int, str, dict[str, str]]:
    """Send a plain HTTP request; return status, body and headers of the response."""
    ws = await RawSocket.connect(port)
    try:
        await ws.write(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        answer = await ws.read_response()
    finally:
        await ws.abort()
    return answer.status, answer.body.decode(), answer.headers


async def get_gateway_names(port: int, count: int = 2) -> set[str]:
    """Return the names of the processes behind a port, once `count` of them have answered."""
    seen: set[str] = set()

    async def has_seen_all() -> bool:
        status, _, headers = await http_get(port, "/readyz")
        if status == 200:
            seen.add(headers["chat-gateway"])
        return len(seen) >= count

    await eventually(has_seen_all, START_DEADLINE_S, f"{count} processes answer")
    return seen


async def connect_avoiding(device: RawChat, avoid: str) -> None:
    """Connect a device to a process other than `avoid`."""
    async with asyncio.timeout(START_DEADLINE_S):
        await device.start()
        while device.gateway == avoid:
            await device.reconnect()


# ── serving ───────────────────────────────────────────────────────────────────────────────────────


async def test_processes_of_one_port_each_have_a_name_health_and_metrics(
    fleet: Fleet, metrics_port: int
) -> None:
    """The kernel distributes connections over the processes; each response names its process."""
    assert len(fleet.children) == 2

    assert len(await get_gateway_names(fleet.port)) == 2
    status, text, _ = await http_get(fleet.port, "/healthz")
    assert (status, text) == (200, "ok\n")

    async def is_measured() -> bool:
        with contextlib.suppress(OSError):  # a restarted process serves its metrics a little later
            for number in range(2):
                await read_metric(metrics_port + number, "loop_lag_seconds_count")
            return True
        return False

    await eventually(is_measured, START_DEADLINE_S)


async def test_events_cross_between_processes_of_one_port(
    stack: Stack, fleet: Fleet, new_name: NewName
) -> None:
    """Messages, marks and signals of a user on another process are delivered."""
    alice = await stack.chat_of(new_name("alice"), port=fleet.port).start()
    bob = stack.chat_of(new_name("bob"), port=fleet.port)
    await connect_avoiding(bob, avoid=alice.gateway)
    chat = await alice.open_direct(bob.user)
    await bob.request("open_direct", user=alice.user)

    await alice.send(chat, "hello")
    await bob.expect_bodies(chat, ["hello"])
    await bob.request("mark", chat=chat, read=1)
    await alice.expect_frame("event", kind="read")
    await bob.send_frame("typing", chat=chat, on=True)
    await alice.expect_frame("signal")

    assert alice.gateway != bob.gateway
    await alice.stop()
    await bob.stop()


# ── restart and rolling replacement ───────────────────────────────────────────────────────────────


async def test_killed_process_is_replaced_and_others_are_not_affected(
    stack: Stack, fleet: Fleet, new_name: NewName
) -> None:
    """Clients of a killed process can reconnect at once, and a new process is started."""
    alice = await stack.chat_of(new_name("alice"), port=fleet.port).start()
    bob = stack.chat_of(new_name("bob"), port=fleet.port)
    await connect_avoiding(bob, avoid=alice.gateway)
    before = await get_gateway_names(fleet.port)
    victim = find_process(fleet, alice.gateway)

    victim.kill()

    await alice.ended.wait()
    await reconnect_until_connected(alice)
    after = await get_gateway_names(fleet.port)
    assert len(after & before) == 1 and bob.gateway in after
    assert not bob.ended.is_set()
    assert len(fleet.children) == 2
    await alice.stop()
    await bob.stop()


def find_process(fleet: Fleet, gateway: str) -> psutil.Process:
    """Return the process with a name, from its `gateway.ready` log event."""
    for line in fleet.output().splitlines():
        if b'"gateway.ready"' in line and gateway.encode() in line:
            return psutil.Process(json.loads(line)["pid"])
    raise AssertionError(f"no process logged gateway.ready as {gateway}")


async def reconnect_until_connected(device: RawChat) -> None:
    """Reconnect like a client: retry until a process accepts the connection."""

    async def is_back() -> bool:
        with contextlib.suppress(Ended, Refused, OSError):
            await device.reconnect()
        return device.is_connected

    await eventually(is_back, START_DEADLINE_S)


class ConnectionLoop:
    """Opens connections all the time and counts the outcomes."""

    def __init__(self, port: int) -> None:
        self.served = 0
        self.refused = 0
        self.lost: list[str] = []
        self._port = port

    async def run(self) -> None:
        """Connect repeatedly until cancelled."""
        while True:
            try:
                ws = await RawSocket.open(self._port)
            except Refused as exc:
                assert exc.response.status == 503, exc
                assert "retry-after" in exc.response.headers, exc
                self.refused += 1
            except (Ended, OSError) as exc:
                self.lost.append(repr(exc))
            else:
                self.served += 1
                await ws.abort()
            await asyncio.sleep(0)


async def test_sighup_replaces_every_process_without_downtime(
    stack: Stack, fleet: Fleet, new_name: NewName
) -> None:
    """The port accepts connections at all times, and clients get a bye with a reconnect delay."""
    alice = await stack.chat_of(new_name("alice"), port=fleet.port).start()
    bob = stack.chat_of(new_name("bob"), port=fleet.port)
    await connect_avoiding(bob, avoid=alice.gateway)
    before = await get_gateway_names(fleet.port)
    connections = ConnectionLoop(fleet.port)
    connecting = asyncio.create_task(connections.run())
    restarts = fleet.output().count(b"gateways.restarted")

    fleet.send_signal(signal.SIGHUP)

    await eventually(
        lambda: fleet.output().count(b"gateways.restarted") > restarts,
        START_DEADLINE_S,
        "restarted",
    )
    served_meanwhile = connections.served
    await eventually(lambda: connections.served > 20)
    connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled(), connecting
    # When a process ends, the kernel may reset one connection that was queued after the last
    # accept, during the connect or the handshake.
    resets = ("ConnectionResetError", "Ended('reset')")
    assert all(any(reset in why for reset in resets) for why in connections.lost), connections.lost
    assert len(connections.lost) <= 2 and served_meanwhile > 0
    for device in (alice, bob):
        bye = await device.expect_close(SHUTDOWN)
        assert bye is not None and 0 < bye["retry_after_ms"] <= 10_000
        await device.reconnect()
    assert not await get_gateway_names(fleet.port) & before
    assert len(fleet.children) == 2
    await alice.stop()
    await bob.stop()


async def test_rolling_restart_with_an_invalid_setting_keeps_the_running_processes(
    stack: Stack, tmp_path: Path
) -> None:
    """The restart is aborted. Once the setting is corrected, a killed process is replaced."""
    file = tmp_path / "settings.toml"
    file.write_text("[gateway]\nsessions_per_user_max = 30\n")
    fleet = stack.add_fleet(2, CHAT_CONFIG=str(file))
    await start_async(fleet)
    before = await get_gateway_names(fleet.port)

    file.write_text("[gateway]\nsessions_per_user_max = 'many'\n")
    fleet.send_signal(signal.SIGHUP)
    await eventually(lambda: b"gateways.restart_given_up" in fleet.output(), START_DEADLINE_S)
    assert await get_gateway_names(fleet.port) == before
    find_process(fleet, before.pop()).kill()
    await eventually(lambda: b"gateways.start_failed" in fleet.output(), START_DEADLINE_S)
    assert await get_gateway_names(fleet.port, 1) == before

    file.write_text("[gateway]\nsessions_per_user_max = 20\n")
    after = await get_gateway_names(fleet.port)
    assert before < after
    fleet.kill()
    stack.gateways.remove(fleet)


async def test_presence_at_a_killed_gateway_expires(stack: Stack, new_name: NewName) -> None:
    """Its users are offline after the TTL, and its stream expires."""
    killed = stack.start_gateway(CHAT_GATEWAY_ONLINE_TTL_S="1.5")
    alice = await stack.chat_of(new_name("alice"), port=killed.port).start()
    bob = await stack.chat_of(new_name("bob")).start()
    chat = await bob.open_direct(alice.user)
    user = UserId(alice.user)
    delivery = Delivery(user, ChatId(chat), Seq(0), Seq(0), Epoch(""))
    async with open_hot(redis_settings(stack.redis_url)) as hot:

        async def get_online_gateways() -> tuple[str, ...]:
            (result,) = await Inboxes(hot).deliver([delivery])
            return result.gateways

        async def is_known() -> bool:
            return await get_online_gateways() == (alice.gateway,)

        # A gateway that stalls longer than the TTL is offline until its next heartbeat.
        await eventually(is_known, what="alice is online at the gateway")

        killed.kill()

        async def is_offline() -> bool:
            await bob.send(chat, "are you there?")
            return await get_online_gateways() == ()

        await eventually(is_offline, what="alice is offline")
        assert not await hot.call("EXISTS", hot.keys.online(user))
        assert not await hot.call("EXISTS", hot.keys.gateway_stream(GatewayId(alice.gateway)))
    stack.gateways.remove(killed)
    await alice.abort()
    await bob.stop()


# ── shutdown ──────────────────────────────────────────────────────────────────────────────────────


async def test_sigterm_under_traffic_stops_all_processes_and_loses_no_send(
    stack: Stack, stopped_fleet: Fleet, new_name: NewName
) -> None:
    """Every send is acked, or committed once when it is retried at another gateway."""
    bob = await stack.chat_of(new_name("bob")).start()
    writers = [stack.chat_of(new_name("writer"), port=stopped_fleet.port) for _ in range(4)]
    chats = []
    for writer in writers:
        await writer.start()
        chats.append(await writer.open_direct(bob.user))
    bodies = [f"m{number}" for number in range(40)]
    process = stopped_fleet.process
    assert process is not None

    for number, body in enumerate(bodies):
        for writer, chat in zip(writers, chats, strict=True):
            with contextlib.suppress(Ended, OSError):
                await writer.send_nowait(chat, body)
        if number == 20:
            stopped_fleet.send_signal(signal.SIGTERM)

    assert await asyncio.to_thread(process.wait, END_DEADLINE_S) == 0
    assert is_port_free(stopped_fleet.port)
    for writer, chat in zip(writers, chats, strict=True):
        await writer.ended.wait()
        await writer.reconnect(port=stack.port)
        await writer.expect(lambda me: not me.pending)
        await bob.expect(lambda me, chat=chat: len(me.messages(chat)) >= 40)
        assert sorted(message["body"] for message in bob.messages(chat)) == sorted(bodies)
        await writer.stop()
    await bob.stop()


async def test_killed_supervisor_leaves_no_process_on_its_port(stack: Stack) -> None:
    """Port 0 selects a free port, which the ready event names. `kill -9` also ends the children."""
    fleet = stack.add_fleet(2, CHAT_GATEWAY_PORT="0")
    stack.gateways.remove(fleet)
    await start_async(fleet)
    (line,) = (line for line in fleet.output().splitlines() if b"gateways.ready" in line)
    port = json.loads(line)["port"]
    assert len(await get_gateway_names(port)) == 2
    children = fleet.children

    fleet.kill()

    await eventually(lambda: not any(is_running(child.pid) for child in children))
    await eventually(lambda: is_port_free(port))


# ── failed starts ─────────────────────────────────────────────────────────────────────────────────


async def run_until_exit(stack: Stack, **settings: str) -> tuple[int | None, str]:
    """Run a supervisor whose processes cannot start; return the exit code and the output."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "chatserver.cli.main", "gateway", "--processes", "2"],
        env={**os.environ, **stack.environment(CHAT_GATEWAY_PORT=str(free_port())), **settings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(START_DEADLINE_S * 3):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_second_supervisor_on_a_shared_port_does_not_start(
    stack: Stack, fleet: Fleet
) -> None:
    """It would get half of the first one's connections without an error."""
    code, output = await run_until_exit(stack, CHAT_GATEWAY_PORT=str(fleet.port))

    assert code == 2
    assert f"cannot listen on 127.0.0.1:{fleet.port}" in output
    assert "Traceback" not in output


async def test_gateways_whose_metrics_port_is_taken_do_not_start(
    stack: Stack, fleet: Fleet, metrics_port: int
) -> None:
    """Each process needs its own port; all ports are checked before the first start."""
    code, output = await run_until_exit(stack, CHAT_TELEMETRY_METRICS_PORT=str(metrics_port - 1))

    assert code == 2
    assert f"telemetry.metrics_port: cannot listen on {metrics_port}" in output


async def test_supervisor_with_an_invalid_setting_exits_at_once(stack: Stack) -> None:
    """The processes detect the error, and the output names it."""
    code, output = await run_until_exit(stack, CHAT_REDIS_PARTITIONS="7")

    assert code == 1
    assert "redis.partitions: is 7, but this Redis was initialized with 1" in output
    assert "exited with code 2 during startup" in output
    assert "Traceback" not in output


async def test_supervisor_exits_after_three_failed_starts(stack: Stack) -> None:
    """With a Redis that refuses all commands, it retries with backoff and then exits."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code, output = await run_until_exit(stack, CHAT_REDIS_URL=f"redis://127.0.0.1:{port}/0")

    assert code == 1
    assert "exited with code 1 during startup (attempt 3)" in output
    assert "Traceback" not in output
