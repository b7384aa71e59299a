"""Webhooks on real processes: `before_send` calls and events."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from chatserver.dev.servers import HOST, Server
from chatserver.domain.clock import SystemClock
from chatserver.features.webhooks.client import HEADER, is_signed
from tests.support.rawchat import Failed, RawChat, get_refusal
from tests.support.servers.processes import eventually, free_port, redis_client
from tests.support.stack import PATIENT, Stack, open_stack

SECRET = "w" * 40
DEADLINE_S = 60.0
_refs = itertools.count(1)

Answer = Callable[[dict[str, Any]], Any]


class Host:
    """A stub of the host application; it records calls and events and checks signatures."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.wrong_signatures = 0
        self.answer: Answer = lambda question: {"action": "accept"}
        self.status: Callable[[dict[str, Any]], int] = lambda event: 204

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        header, now = request.headers.get(HEADER, ""), SystemClock().time()
        if not is_signed(SECRET.encode(), header, body, now):
            self.wrong_signatures += 1
        fields = json.loads(body)
        if request.path == "/events":
            assert request.headers["Chat-Event-Id"] == fields["id"]
            self.events.append(fields)
            return web.Response(status=self.status(fields))
        self.calls.append(fields)
        answer = self.answer(fields)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, web.Response):
            return answer
        return web.json_response(answer)


@pytest.fixture(scope="module")
def port() -> int:
    """The port of the host application, which is not running in all tests."""
    return free_port()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Stack]:
    """A stack that sends calls and events to the host application."""
    env = {
        **PATIENT,
        "CHAT_OUTBOUND_ALLOW_PRIVATE": '["127.0.0.1"]',
        "CHAT_WEBHOOKS_SECRET": SECRET,
        "CHAT_WEBHOOKS_BEFORE_SEND_TIMEOUT_S": "10",
        "chatserver.features.webhooks.before_send.BREAKER_FAILURES": "3",
        "chatserver.features.webhooks.before_send.BREAKER_S": "600",
        "CHAT_WEBHOOKS_EVENTS_URL": f"http://{HOST}:{port}/events",
        "CHAT_WEBHOOKS_TIMEOUT_S": "20",
        "chatserver.features.webhooks.worker.ATTEMPTS_MAX": "3",
        "chatserver.features.webhooks.worker.BACKOFF_S": "0.05",
        "chatserver.features.webhooks.worker.BACKOFF_S_MAX": "1",
    }
    folder = tmp_path_factory.mktemp("webhooks")
    before_send = {"CHAT_WEBHOOKS_BEFORE_SEND_URL": f"http://{HOST}:{port}/before"}
    with open_stack(folder, fsync="no", env=env, gateways=0) as made:
        made.start_worker("webhooks", **before_send)
        made.start_gateway(**before_send)
        yield made


@pytest.fixture(scope="module")
def closed_gateway(stack: Stack, port: int) -> Server:
    """A gateway that refuses messages if the webhook fails."""
    return stack.start_gateway(
        CHAT_WEBHOOKS_BEFORE_SEND_URL=f"http://{HOST}:{port}/before",
        CHAT_WEBHOOKS_BEFORE_SEND_POLICY="closed",
    )


@pytest.fixture(scope="module")
def gateway_without_webhook(stack: Stack) -> Server:
    """A gateway without a `before_send` webhook."""
    return stack.start_gateway()


@asynccontextmanager
async def running_host(host: Host, port: int) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/{path:.*}", host.handle)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.fixture
async def host(port: int) -> AsyncIterator[Host]:
    made = Host()
    async with running_host(made, port):
        yield made
    assert made.wrong_signatures == 0


@pytest.fixture
async def alice(stack: Stack) -> AsyncIterator[RawChat]:
    async with stack.chat_of(f"alice-{next(_refs)}") as chat:
        yield chat


async def open_direct(stack: Stack, user: RawChat) -> str:
    """Open a direct chat of a user with a new user."""
    other = f"other-{next(_refs)}"
    await stack.add_users([other])
    chat: str = await user.open_direct(other)
    return chat


async def bodies(user: RawChat, chat: str) -> list[str]:
    page = await user.request("history", chat=chat)
    return [message["body"] for message in page["messages"]]


# before_send


async def test_before_send_accepts_changes_and_refuses(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """The call has sender, chat and text; members get the changed text."""
    chat = await open_direct(stack, alice)
    host.answer = lambda question: {
        "fine": {"action": "accept"},
        "rude": {"action": "change", "body": "polite", "more": "unknown fields are ignored"},
    }.get(question["body"], {"action": "refuse", "why": "no spam"})

    await alice.send(chat, "fine", "r1")
    ack = await alice.send_unrecorded(chat, "r2", "rude")
    refused = await get_refusal(alice.send_unrecorded(chat, "r3", "spam"))
    again = await alice.send_unrecorded(chat, "r2", "rude")
    other = await get_refusal(alice.send_unrecorded(chat, "r2", "another text"))

    assert await bodies(alice, chat) == ["fine", "polite"]
    assert (refused.code, refused.message) == ("forbidden", "body: no spam")
    assert (again["seq"], again["dup"]) == (ack["seq"], True)
    assert other.code == "conflict"
    first = host.calls[0]
    assert (first["chat"], first["sender"], first["ref"]) == (chat, alice.user, "r1")


async def test_before_send_refuses_edits(stack: Stack, host: Host, alice: RawChat) -> None:
    chat = await open_direct(stack, alice)
    await alice.send(chat, "fine")
    host.answer = lambda question: {"action": "refuse"}

    refused = await get_refusal(alice.request("edit", chat=chat, ref="e", seq=1, body="spam"))

    assert refused.code == "forbidden"
    assert (host.calls[-1]["kind"], host.calls[-1]["target"]) == ("edit", 1)
    assert await bodies(alice, chat) == ["fine"]


async def test_before_send_cannot_refuse_the_retry_of_an_acked_message(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """An acked message stays acked."""
    chat = await open_direct(stack, alice)
    ack = await alice.send_unrecorded(chat, "r1", "hello")
    host.answer = lambda question: {"action": "refuse"}

    again = await alice.send_unrecorded(chat, "r1", "hello")

    assert (again["seq"], again["dup"]) == (ack["seq"], True)


async def test_before_send_keeps_the_sender_s_order_for_responses_in_any_order(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """Messages of a sender in a chat have the order in which they were sent (guarantee P3)."""
    chats = [await open_direct(stack, alice) for _ in range(2)]
    rng = random.Random(7)

    async def respond_late(question: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(rng.random() * 0.05)
        number = int(question["body"])
        if number % 7 == 0:
            return {"action": "refuse"}
        return {"action": "change", "body": str(number)} if number % 2 else {"action": "accept"}

    host.answer = respond_late

    answers = await asyncio.gather(
        *(alice.send_unrecorded(chats[n % 2], f"r{n}", str(n)) for n in range(60)),
        return_exceptions=True,
    )

    refused = [n for n, answer in enumerate(answers) if isinstance(answer, Failed)]
    assert refused == [n for n in range(60) if n % 7 == 0]
    for side, chat in enumerate(chats):
        expected = [str(n) for n in range(60) if n % 2 == side and n % 7]
        assert (await bodies(alice, chat))[-50:] == expected


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "explode"},
        {"action": "change", "body": ""},
        {"action": "change", "body": "x" * 5000},
        {"action": "refuse", "why": "x" * 300},
        [],
        web.Response(body=b"\xff\xfe{"),
        web.Response(body=b"[" * 50_000),
        web.Response(body=b"x" * 100_000),
        web.Response(status=500),
        web.Response(status=302, headers={"Location": "http://169.254.169.254/"}),
    ],
)
async def test_before_send_invalid_response_counts_as_a_failure(
    stack: Stack, host: Host, closed_gateway: Server, answer: Any
) -> None:
    """Responses of the host are not trusted (API10); the policy decides."""
    async with stack.chat_of(f"bob-{next(_refs)}", port=closed_gateway.port) as bob:
        chat = await open_direct(stack, bob)
        # A valid response closes the circuit breaker of this gateway.
        await bob.send(chat, "before")
        host.answer = lambda question: answer

        refused = await get_refusal(bob.send_unrecorded(chat, "r1", "hello"))
        host.answer = lambda question: {"action": "accept"}
        await bob.send_unrecorded(chat, "r1", "hello")

    assert (refused.code, refused.is_temporary) == ("unavailable", True)


async def test_before_send_unavailable_is_decided_by_the_policy(stack: Stack, port: int) -> None:
    """`open` sends messages, `closed` refuses temporarily. After some failures, calls stop."""
    opened, closed = (
        stack.start_gateway(
            CHAT_WEBHOOKS_BEFORE_SEND_URL=f"http://{HOST}:{port}/before",
            CHAT_WEBHOOKS_BEFORE_SEND_POLICY=policy,
        )
        for policy in ("open", "closed")
    )
    async with (
        stack.chat_of(f"carol-{next(_refs)}", port=opened.port) as carol,
        stack.chat_of(f"dave-{next(_refs)}", port=closed.port) as dave,
    ):
        carols_chat, daves_chat = await open_direct(stack, carol), await open_direct(stack, dave)

        for number in range(5):
            await carol.send(carols_chat, str(number))
            refused = await get_refusal(dave.send_unrecorded(daves_chat, f"r{number}", "hello"))
            assert refused.code == "unavailable"
        # The host is up again, but the circuit breaker is still open.
        late = Host()
        async with running_host(late, port):
            await carol.send(carols_chat, "last")

        assert late.calls == []
        assert (await bodies(carol, carols_chat))[-1] == "last"
    for gateway in (opened, closed):
        gateway.kill()
        stack.gateways.remove(gateway)


def events_of(host: Host, chat: str) -> list[dict[str, Any]]:
    """Return the events of a chat without repeats, by seq."""
    found = {each["id"]: each for each in host.events if each["id"].startswith(f"{chat}.")}
    return sorted(found.values(), key=lambda each: each["message"]["seq"])


async def test_events_are_sent_for_all_changes_of_a_chat(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """Messages, edits, deletions, reactions, members and settings; also blocks and reports."""
    others = [f"guest-{next(_refs)}", f"guest-{next(_refs)}"]
    await stack.add_users(others)
    chat = await alice.create_group(others[:1])
    await alice.send(chat, "one")
    await alice.request("edit", chat=chat, ref="e", seq=1, body="two")
    await alice.request("react", chat=chat, ref="r", seq=1, emoji="👍")
    await alice.request("ban_member", chat=chat, ref="b", user=others[0])
    await alice.request("update_chat", chat=chat, ref="u", name="New")
    await alice.request("delete", chat=chat, ref="d", seq=1)
    await alice.request("report", chat=chat, seq=1, reason="why")
    await alice.request("block", user=others[1])

    await eventually(lambda: len(events_of(host, chat)) == 6, DEADLINE_S, "all events are received")
    await eventually(
        lambda: {"report", "user.blocked"} <= {each["type"] for each in host.events}, DEADLINE_S
    )

    events = events_of(host, chat)
    assert [each["type"] for each in events] == [
        "message", "edit", "reaction", "member", "update", "delete",
    ]  # fmt: skip
    assert [each["message"]["seq"] for each in events] == [1, 2, 3, 4, 5, 6]
    assert events[3]["message"]["banned"] is True


async def test_events_that_fail_are_retried_then_dead_letters(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """An operator lists and replays dead letters on the command line."""
    chat = await open_direct(stack, alice)
    host.status = lambda event: 503 if event["id"] == f"{chat}.1" else 204
    await alice.send(chat, "fails")
    await alice.send(chat, "fine")

    def dead() -> list[str]:
        lines = run_cli(stack, "list").stdout.splitlines()
        return [line.split("\t")[0] for line in lines if f"{chat}.1" in line]

    def count_attempts() -> int:
        return sum(each["id"] == f"{chat}.1" for each in host.events)

    await eventually(lambda: count_attempts() == 3, DEADLINE_S, "three attempts are made")
    await eventually(lambda: f"{chat}.2" in [each["id"] for each in host.events], DEADLINE_S)
    with redis_client(stack.redis_url) as client:
        name = f'"{chat}.1"'.encode()
        await eventually(
            lambda: any(name in fields[b"e"] for _, fields in client.xrange("{p0}:hooks-dead")),
            DEADLINE_S,
            "the event is a dead letter",
        )
    ids = await asyncio.to_thread(dead)
    assert len(ids) == 1
    host.status = lambda event: 204

    done = await asyncio.to_thread(run_cli, stack, "replay", *ids)

    assert done.stdout == "1 replayed\n"
    await eventually(lambda: count_attempts() == 4, DEADLINE_S, "the event is replayed")
    assert await asyncio.to_thread(dead) == []
    missing = await asyncio.to_thread(run_cli, stack, "replay", *ids)
    assert missing.returncode == 1
    assert "not found" in missing.stderr


async def test_events_wait_while_the_host_is_down(
    stack: Stack, port: int, gateway_without_webhook: Server
) -> None:
    """They are delivered when the host is up again."""
    async with stack.chat_of(f"bob-{next(_refs)}", port=gateway_without_webhook.port) as bob:
        chat = await open_direct(stack, bob)
        for number in range(20):
            await bob.send(chat, str(number))
        await bob.expect(lambda me: len(me.of_type("stored", chat=chat)) > 0)

    late = Host()
    async with running_host(late, port):
        await eventually(lambda: len(events_of(late, chat)) == 20, DEADLINE_S, "all events")


def run_cli(stack: Stack, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.support.cli", "webhooks", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", **stack.environment()},
    )
