"""Several gateway processes on one port: kept up, replaced one by one, ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
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
from tests.support.stack import Fleet, Stack, bring_up, read_metric
from tests.support.wire import Ended, RawSocket, Refused

pytest_plugins = ["tests.support.stack_fixtures"]
pytestmark = pytest.mark.timeout(400)  # of several processes each starts, some again and again

NewName = Callable[[str], str]
SHUTDOWN = 3000
ENDED_S = 60.0  # a drain of 3 s, and the time a busy machine takes
STARTED_S = 90.0  # so long may processes take that start one after another


@pytest.fixture(scope="session")
def metrics_port() -> int:
    """The first of two ports; the one before it is unused."""
    return free_port(3) + 1


@pytest.fixture(scope="session")
def fleet(stack: Stack, metrics_port: int) -> Iterator[Fleet]:
    """Two processes on one port, for tests that leave as many behind."""
    made = stack.add_fleet(2, CHAT_TELEMETRY_METRICS_PORT=str(metrics_port))
    made.start()
    yield made
    made.kill()
    stack.gateways.remove(made)


@pytest.fixture
async def doomed(stack: Stack) -> AsyncIterator[Fleet]:
    """Two processes on one port that the test ends."""
    made = stack.add_fleet(2)
    await bring_up(made)
    yield made
    made.kill()
    stack.gateways.remove(made)


async def ask(port: int, path: str) -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of a plain HTTP answer."""
    ws = await RawSocket.connect(port)
    try:
        await ws.write(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        answer = await ws.read_response()
    finally:
        await ws.abort()
    return answer.status, answer.body.decode(), answer.headers


async def gateways_of(port: int, count: int = 2) -> set[str]:
    """Return the names of the processes behind a port, once that many have answered."""
    seen: set[str] = set()

    async def has_seen_all() -> bool:
        status, _, headers = await ask(port, "/readyz")
        if status == 200:
            seen.add(headers["chat-gateway"])
        return len(seen) >= count

    await eventually(has_seen_all, STARTED_S, f"{count} processes answer")
    return seen


async def reach(device: RawChat, avoid: str) -> None:
    """Connect a device to another process than `avoid`."""
    async with asyncio.timeout(STARTED_S):
        await device.start()
        while device.gateway == avoid:
            await device.reconnect()


# ── serving ─────────────────────────────────────────────────────────────────────────────────────


async def test_processes_of_one_port_each_have_a_name_health_and_metrics(
    fleet: Fleet, metrics_port: int
) -> None:
    """The kernel distributes connections over them; each response names its process."""
    assert len(fleet.children) == 2

    assert len(await gateways_of(fleet.port)) == 2
    status, text, _ = await ask(fleet.port, "/healthz")
    assert (status, text) == (200, "ok\n")

    async def is_measured() -> bool:
        with contextlib.suppress(OSError):  # a replaced process serves its metrics a little later
            for number in range(2):
                await read_metric(metrics_port + number, "loop_lag_seconds_count")
            return True
        return False

    await eventually(is_measured, STARTED_S)


async def test_events_cross_between_processes_of_one_port(
    stack: Stack, fleet: Fleet, new_name: NewName
) -> None:
    """Two people on two processes: messages, marks and signals arrive."""
    alice = await stack.chat_of(new_name("alice"), port=fleet.port).start()
    bob = stack.chat_of(new_name("bob"), port=fleet.port)
    await reach(bob, avoid=alice.gateway)
    chat = (await alice.ask("open_direct", user=bob.user))["chat"]["chat"]
    await bob.ask("open_direct", user=alice.user)

    await alice.say(chat, "over there")
    await bob.expect_bodies(chat, ["over there"])
    await bob.ask("mark", chat=chat, read=1)
    await alice.expect_frame("event", kind="read")
    await bob.tell("typing", chat=chat, on=True)
    await alice.expect_frame("signal")

    assert alice.gateway != bob.gateway
    await alice.stop()
    await bob.stop()


# ── processes that die, and processes that are replaced ─────────────────────────────────────────


async def test_process_killed_is_replaced_and_others_do_not_notice(
    stack: Stack, fleet: Fleet, new_name: NewName
) -> None:
    """`kill -9` of one process: its people go to the other at once, and soon there are two."""
    alice = await stack.chat_of(new_name("alice"), port=fleet.port).start()
    bob = stack.chat_of(new_name("bob"), port=fleet.port)
    await reach(bob, avoid=alice.gateway)
    before = await gateways_of(fleet.port)
    victim = process_of(fleet, alice.gateway)

    victim.kill()

    await alice.ended.wait()
    await reconnect_patiently(alice)
    after = await gateways_of(fleet.port)
    assert len(after & before) == 1 and bob.gateway in after
    assert not bob.ended.is_set()
    assert len(fleet.children) == 2
    await alice.stop()
    await bob.stop()


def process_of(fleet: Fleet, gateway: str) -> psutil.Process:
    """Find the process with a name, which it logged when it was ready."""
    for line in fleet.said().splitlines():
        if b'"gateway.ready"' in line and gateway.encode() in line:
            return psutil.Process(json.loads(line)["pid"])
    raise AssertionError(f"no process said that it is {gateway}")


async def reconnect_patiently(device: RawChat) -> None:
    """Come back as a client does: again, until a process takes it."""

    async def is_back() -> bool:
        with contextlib.suppress(Ended, Refused, OSError):
            await device.reconnect()
        return device.is_connected

    await eventually(is_back, STARTED_S)


class Knocker:
    """Connects all the time, and notes whether it was served."""

    def __init__(self, port: int) -> None:
        self.served = 0
        self.sent_elsewhere = 0
        self.lost: list[str] = []
        self._port = port

    async def knock(self) -> None:
        """Connect again and again until cancelled."""
        while True:
            try:
                ws = await RawSocket.open(self._port)
            except Refused as exc:
                is_told = exc.response.status == 503 and "retry-after" in exc.response.headers
                assert is_told, exc
                self.sent_elsewhere += 1
            except (Ended, OSError) as exc:
                self.lost.append(repr(exc))
            else:
                self.served += 1
                await ws.abort()
            await asyncio.sleep(0)


async def test_sighup_replaces_every_process_and_the_port_serves_all_the_time(
    stack: Stack, fleet: Fleet, new_name: NewName
) -> None:
    """The port accepts connections at all times, and clients are asked to reconnect."""
    alice = await stack.chat_of(new_name("alice"), port=fleet.port).start()
    bob = stack.chat_of(new_name("bob"), port=fleet.port)
    await reach(bob, avoid=alice.gateway)
    before = await gateways_of(fleet.port)
    knocker = Knocker(fleet.port)
    knocking = asyncio.create_task(knocker.knock())
    done = fleet.said().count(b"gateways.restarted")

    fleet.send_signal(signal.SIGHUP)

    await eventually(
        lambda: fleet.said().count(b"gateways.restarted") > done, STARTED_S, "restarted"
    )
    served_meanwhile = knocker.served
    await eventually(lambda: knocker.served > 20)
    knocking.cancel()
    await asyncio.wait([knocking])
    assert knocking.cancelled(), knocking
    # Between a process's last look into its queue and its end the kernel may put one more there,
    # and reset it: as one connects, or as one asks.
    is_reset = ("ConnectionResetError" in why or "Ended('reset')" in why for why in knocker.lost)
    assert all(is_reset), knocker.lost
    assert len(knocker.lost) <= 2 and served_meanwhile > 0
    for device in (alice, bob):
        bye = await device.expect_close(SHUTDOWN)
        assert bye is not None and 0 < bye["retry_after_ms"] <= 10_000
        await device.reconnect()
    assert not await gateways_of(fleet.port) & before
    assert len(fleet.children) == 2
    await alice.stop()
    await bob.stop()


async def test_processes_that_cannot_start_leave_those_that_serve_alone(
    stack: Stack, tmp_path: Path
) -> None:
    """An invalid setting ends a rolling restart without an effect; corrected, it completes."""
    file = tmp_path / "settings.toml"
    file.write_text("[gateway]\nsessions_per_user_max = 30\n")
    fleet = stack.add_fleet(2, CHAT_CONFIG=str(file))
    await bring_up(fleet)
    before = await gateways_of(fleet.port)

    file.write_text("[gateway]\nsessions_per_user_max = 'many'\n")
    fleet.send_signal(signal.SIGHUP)
    await eventually(lambda: b"gateways.restart_given_up" in fleet.said(), STARTED_S)
    assert await gateways_of(fleet.port) == before
    process_of(fleet, before.pop()).kill()
    await eventually(lambda: b"gateways.start_failed" in fleet.said(), STARTED_S)
    assert await gateways_of(fleet.port, 1) == before

    file.write_text("[gateway]\nsessions_per_user_max = 20\n")
    after = await gateways_of(fleet.port)
    assert before < after
    fleet.kill()
    stack.gateways.remove(fleet)


async def test_gateway_that_died_leaves_no_presence_beyond_its_expiry(
    stack: Stack, new_name: NewName
) -> None:
    """Its users are offline then, and its stream expires."""
    mortal = stack.start_gateway(CHAT_GATEWAY_ONLINE_TTL_S="1.5")
    alice = await stack.chat_of(new_name("alice"), port=mortal.port).start()
    bob = await stack.chat_of(new_name("bob")).start()
    chat = (await bob.ask("open_direct", user=alice.user))["chat"]["chat"]
    user = UserId(alice.user)
    look = Delivery(user, ChatId(chat), Seq(0), Seq(0), Epoch(""))
    async with open_hot(redis_settings(stack.redis_url)) as hot:

        async def where() -> tuple[str, ...]:
            (place,) = await Inboxes(hot).deliver([look])
            return place.gateways

        async def is_known() -> bool:
            return await where() == (alice.gateway,)

        # A gateway that was held up for a second is not, until it says so again.
        await eventually(is_known, what="alice is online there")

        mortal.kill()

        async def is_forgotten() -> bool:
            await bob.say(chat, "are you there?")
            return await where() == ()

        await eventually(is_forgotten, what="alice is online nowhere")
        assert not await hot.call("EXISTS", hot.keys.online(user))
        assert not await hot.call("EXISTS", hot.keys.gateway_stream(GatewayId(alice.gateway)))
    stack.gateways.remove(mortal)
    await alice.abort()
    await bob.stop()


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


async def test_sigterm_under_traffic_ends_all_in_time_and_loses_no_send(
    stack: Stack, doomed: Fleet, new_name: NewName
) -> None:
    """Every send is acked, or is committed once when it is offered again elsewhere."""
    bob = await stack.chat_of(new_name("bob")).start()
    writers = [stack.chat_of(new_name("writer"), port=doomed.port) for _ in range(4)]
    chats = []
    for writer in writers:
        await writer.start()
        chats.append((await writer.ask("open_direct", user=bob.user))["chat"]["chat"])
    bodies = [f"m{number}" for number in range(40)]
    process = doomed.process
    assert process is not None

    for number, body in enumerate(bodies):
        for writer, chat in zip(writers, chats, strict=True):
            with contextlib.suppress(Ended, OSError):
                await writer.post(chat, body)
        if number == 20:
            doomed.send_signal(signal.SIGTERM)

    assert await asyncio.to_thread(process.wait, ENDED_S) == 0
    assert is_port_free(doomed.port)
    for writer, chat in zip(writers, chats, strict=True):
        await writer.ended.wait()
        await writer.reconnect(port=stack.port)
        await writer.expect(lambda me: not me.pending)
        await bob.expect(lambda me, chat=chat: len(me.messages(chat)) >= 40)
        assert sorted(message["body"] for message in bob.messages(chat)) == sorted(bodies)
        await writer.stop()
    await bob.stop()


async def test_supervisor_killed_leaves_no_orphan_on_the_port_it_took(stack: Stack) -> None:
    """Port 0 is a free one that the ready line names; `kill -9` takes all processes along."""
    fleet = stack.add_fleet(2, CHAT_GATEWAY_PORT="0")
    stack.gateways.remove(fleet)
    await bring_up(fleet)
    (line,) = (line for line in fleet.said().splitlines() if b"gateways.ready" in line)
    port = json.loads(line)["port"]
    assert len(await gateways_of(port)) == 2
    children = fleet.children

    fleet.kill()

    await eventually(lambda: not any(is_running(child.pid) for child in children))
    await eventually(lambda: is_port_free(port))


# ── starts that fail ────────────────────────────────────────────────────────────────────────────


async def end_of(stack: Stack, **settings: str) -> tuple[int | None, str]:
    """Start two processes that cannot start; return the exit code and the output."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "chatserver.cli.main", "gateway", "--processes", "2"],
        env={**os.environ, **stack.environment(CHAT_GATEWAY_PORT=str(free_port())), **settings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(STARTED_S * 3):
        said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_gateways_on_a_port_that_others_share_do_not_start(
    stack: Stack, fleet: Fleet
) -> None:
    """A second supervisor would take half of the first one's connections without a word."""
    code, said = await end_of(stack, CHAT_GATEWAY_PORT=str(fleet.port))

    assert code == 2
    assert f"cannot listen on 127.0.0.1:{fleet.port}" in said
    assert "Traceback" not in said


async def test_gateways_whose_metrics_port_is_taken_do_not_start(
    stack: Stack, fleet: Fleet, metrics_port: int
) -> None:
    """Each process needs one; all of them are looked at before the first start."""
    code, said = await end_of(stack, CHAT_TELEMETRY_METRICS_PORT=str(metrics_port - 1))

    assert code == 2
    assert f"telemetry.metrics_port: cannot listen on {metrics_port}" in said


async def test_gateways_with_a_wrong_setting_are_given_up_at_once(stack: Stack) -> None:
    """A process reports errors that only it can detect, and the supervisor exits with an error."""
    code, said = await end_of(stack, CHAT_REDIS_PARTITIONS="7")

    assert code == 1
    assert "redis.partitions: is 7, but this Redis was initialized with 1" in said
    assert "ended with 2 while starting" in said
    assert "Traceback" not in said


async def test_gateways_that_never_start_are_given_up_after_a_few_tries(stack: Stack) -> None:
    """A Redis that refuses everybody: some tries with growing pauses, then one clear error."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code, said = await end_of(stack, CHAT_REDIS_URL=f"redis://127.0.0.1:{port}/0")

    assert code == 1
    assert "ended with 1 while starting, 3 times in a row" in said
    assert "Traceback" not in said
