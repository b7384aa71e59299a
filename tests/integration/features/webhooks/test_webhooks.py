"""Webhooks on real processes: calls before a message is sent, and events after it."""

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
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually, free_port, redis_client
from tests.support.stack import PATIENT, Stack, open_stack

SECRET = "w" * 40
DEADLINE_S = 60.0
_refs = itertools.count(1)

Answering = Callable[[dict[str, Any]], Any]


class Host:
    """The host application: the calls and events that it got, and its responses."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.forged = 0
        self.answer: Answering = lambda question: {"action": "accept"}
        self.status: Callable[[dict[str, Any]], int] = lambda event: 204

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        header, now = request.headers.get(HEADER, ""), SystemClock().time()
        if not is_signed(SECRET.encode(), header, body, now):
            self.forged += 1
        fields = json.loads(body)
        if request.path == "/events":
            assert request.headers["Chat-Event-Id"] == fields["id"]
            self.told.append(fields)
            return web.Response(status=self.status(fields))
        self.asked.append(fields)
        answer = self.answer(fields)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, web.Response):
            return answer
        return web.json_response(answer)


@pytest.fixture(scope="module")
def port() -> int:
    """Where the host application is, if it is up."""
    return free_port()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Stack]:
    """A stack whose host application gets calls and events."""
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
    asks = {"CHAT_WEBHOOKS_BEFORE_SEND_URL": f"http://{HOST}:{port}/before"}
    with open_stack(folder, fsync="no", env=env, gateways=0) as made:
        made.start_worker("webhooks", **asks)
        made.start_gateway(**asks)
        yield made


@pytest.fixture(scope="module")
def closed(stack: Stack, port: int) -> Server:
    """A gateway that lets nothing pass unseen."""
    return stack.start_gateway(
        CHAT_WEBHOOKS_BEFORE_SEND_URL=f"http://{HOST}:{port}/before",
        CHAT_WEBHOOKS_BEFORE_SEND_POLICY="closed",
    )


@pytest.fixture(scope="module")
def plain(stack: Stack) -> Server:
    """A gateway without a webhook."""
    return stack.start_gateway()


@asynccontextmanager
async def serving(host: Host, port: int) -> AsyncIterator[None]:
    """Have the host application up."""
    app = web.Application()
    app.router.add_post("/{path:.*}", host.take)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.fixture
async def host(port: int) -> AsyncIterator[Host]:
    """The host application, up."""
    made = Host()
    async with serving(made, port):
        yield made
    assert made.forged == 0


@pytest.fixture
async def alice(stack: Stack) -> AsyncIterator[RawChat]:
    async with stack.chat_of(f"alice-{next(_refs)}") as chat:
        yield chat


async def direct(stack: Stack, who: RawChat) -> str:
    """Return a direct chat of a user with somebody new."""
    other = f"other-{next(_refs)}"
    await stack.add_users([other])
    chat: str = (await who.ask("open_direct", user=other))["chat"]["chat"]
    return chat


async def bodies(who: RawChat, chat: str) -> list[str]:
    page = await who.ask("history", chat=chat)
    return [message["body"] for message in page["messages"]]


# before_send


async def test_before_send_accepts_changes_and_refuses(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """It gets sender, chat and text; its changes are what everybody reads."""
    chat = await direct(stack, alice)
    host.answer = lambda question: {
        "fine": {"action": "accept"},
        "rude": {"action": "change", "body": "polite", "more": "unknown fields are ignored"},
    }.get(question["body"], {"action": "refuse", "why": "no spam"})

    await alice.say(chat, "fine", "r1")
    ack = await alice.ask_send(chat, "r2", "rude")
    with pytest.raises(Failed) as caught:
        await alice.ask_send(chat, "r3", "spam")
    again = await alice.ask_send(chat, "r2", "rude")
    with pytest.raises(Failed) as other:
        await alice.ask_send(chat, "r2", "another text")

    assert await bodies(alice, chat) == ["fine", "polite"]
    assert (caught.value.code, caught.value.message) == ("forbidden", "body: no spam")
    assert (again["seq"], again["dup"]) == (ack["seq"], True)
    assert other.value.code == "conflict"
    first = host.asked[0]
    assert (first["chat"], first["sender"], first["ref"]) == (chat, alice.user, "r1")


async def test_before_send_judges_edits_too(stack: Stack, host: Host, alice: RawChat) -> None:
    """A forbidden text cannot be added by an edit."""
    chat = await direct(stack, alice)
    await alice.say(chat, "fine")
    host.answer = lambda question: {"action": "refuse"}

    with pytest.raises(Failed) as caught:
        await alice.ask("edit", chat=chat, ref="e", seq=1, body="spam")

    assert caught.value.code == "forbidden"
    assert (host.asked[-1]["kind"], host.asked[-1]["target"]) == ("edit", 1)
    assert await bodies(alice, chat) == ["fine"]


async def test_before_send_that_refuses_the_retry_of_a_sent_message_is_overruled(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """An acked message stays acked (invariant I11)."""
    chat = await direct(stack, alice)
    ack = await alice.ask_send(chat, "r1", "hello")
    host.answer = lambda question: {"action": "refuse"}

    again = await alice.ask_send(chat, "r1", "hello")

    assert (again["seq"], again["dup"]) == (ack["seq"], True)


async def test_before_send_with_answers_in_any_order_keeps_that_of_the_sender(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """Messages of one sender in a chat stand in the order in which they were sent (promise P3)."""
    chats = [await direct(stack, alice) for _ in range(2)]
    dice = random.Random(7)

    async def dither(question: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(dice.random() * 0.05)
        number = int(question["body"])
        if number % 7 == 0:
            return {"action": "refuse"}
        return {"action": "change", "body": str(number)} if number % 2 else {"action": "accept"}

    host.answer = dither

    answers = await asyncio.gather(
        *(alice.ask_send(chats[n % 2], f"r{n}", str(n)) for n in range(60)),
        return_exceptions=True,
    )

    refused = [n for n, answer in enumerate(answers) if isinstance(answer, Failed)]
    assert refused == [n for n in range(60) if n % 7 == 0]
    for side, chat in enumerate(chats):
        wanted = [str(n) for n in range(60) if n % 2 == side and n % 7]
        assert (await bodies(alice, chat))[-50:] == wanted


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
async def test_before_send_that_answers_nonsense_is_as_none(
    stack: Stack, host: Host, closed: Server, answer: Any
) -> None:
    """The host's answers are not trusted either (API10): the policy decides."""
    async with stack.chat_of(f"bob-{next(_refs)}", port=closed.port) as bob:
        chat = await direct(stack, bob)
        # The breaker of this gateway: one good answer closes it.
        await bob.say(chat, "before")
        host.answer = lambda question: answer

        with pytest.raises(Failed) as caught:
            await bob.ask_send(chat, "r1", "hello")
        host.answer = lambda question: {"action": "accept"}
        await bob.ask_send(chat, "r1", "hello")

    assert (caught.value.code, caught.value.is_temporary) == ("unavailable", True)


async def test_before_send_that_is_dead_stalls_nobody(stack: Stack, port: int) -> None:
    """Open: messages pass. Closed: temporary refusal. After some failures, no calls."""
    opened, shut = (
        stack.start_gateway(
            CHAT_WEBHOOKS_BEFORE_SEND_URL=f"http://{HOST}:{port}/before",
            CHAT_WEBHOOKS_BEFORE_SEND_POLICY=policy,
        )
        for policy in ("open", "closed")
    )
    async with (
        stack.chat_of(f"carol-{next(_refs)}", port=opened.port) as carol,
        stack.chat_of(f"dave-{next(_refs)}", port=shut.port) as dave,
    ):
        theirs, his = await direct(stack, carol), await direct(stack, dave)

        for number in range(5):
            await carol.say(theirs, str(number))
            with pytest.raises(Failed) as caught:
                await dave.ask_send(his, f"r{number}", "hello")
            assert caught.value.code == "unavailable"
        # It is up again, and is not asked before its time.
        late = Host()
        async with serving(late, port):
            await carol.say(theirs, "last")

        assert late.asked == []
        assert (await bodies(carol, theirs))[-1] == "last"
    for gateway in (opened, shut):
        gateway.kill()
        stack.gateways.remove(gateway)


# events


def of_chat(host: Host, chat: str) -> list[dict[str, Any]]:
    """Return the host's events of a chat, each once, in the order of their seqs."""
    found = {each["id"]: each for each in host.told if each["id"].startswith(f"{chat}.")}
    return sorted(found.values(), key=lambda each: each["message"]["seq"])


async def test_events_of_a_chat_are_told_with_all_that_happened(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """Messages, edits, deletions, reactions, members and settings; blocks and reports."""
    others = [f"guest-{next(_refs)}", f"guest-{next(_refs)}"]
    await stack.add_users(others)
    chat = (await alice.ask("create_chat", ref="g", members=others[:1]))["chat"]["chat"]
    await alice.say(chat, "one")
    await alice.ask("edit", chat=chat, ref="e", seq=1, body="two")
    await alice.ask("react", chat=chat, ref="r", seq=1, emoji="👍")
    await alice.ask("ban_member", chat=chat, ref="b", user=others[0])
    await alice.ask("update_chat", chat=chat, ref="u", name="New")
    await alice.ask("delete", chat=chat, ref="d", seq=1)
    await alice.ask("report", chat=chat, seq=1, reason="why")
    await alice.ask("block", user=others[1])

    await eventually(lambda: len(of_chat(host, chat)) == 6, DEADLINE_S, "all events")
    await eventually(
        lambda: {"report", "user.blocked"} <= {each["type"] for each in host.told}, DEADLINE_S
    )

    told = of_chat(host, chat)
    assert [each["type"] for each in told] == [
        "message", "edit", "reaction", "member", "update", "delete",
    ]  # fmt: skip
    assert [each["message"]["seq"] for each in told] == [1, 2, 3, 4, 5, 6]
    assert told[3]["message"]["banned"] is True


async def test_events_that_fail_are_tried_again_and_then_kept_for_the_operator(
    stack: Stack, host: Host, alice: RawChat
) -> None:
    """Retried with backoff; after the last attempt a dead letter, which the CLI replays."""
    chat = await direct(stack, alice)
    host.status = lambda event: 503 if event["id"] == f"{chat}.1" else 204
    await alice.say(chat, "doomed")
    await alice.say(chat, "fine")

    def dead() -> list[str]:
        lines = run_cli(stack, "list").stdout.splitlines()
        return [line.split("\t")[0] for line in lines if f"{chat}.1" in line]

    def tries() -> int:
        return sum(each["id"] == f"{chat}.1" for each in host.told)

    await eventually(lambda: tries() == 3, DEADLINE_S, "three attempts")
    await eventually(lambda: f"{chat}.2" in [each["id"] for each in host.told], DEADLINE_S)
    with redis_client(stack.redis_url) as client:
        name = f'"{chat}.1"'.encode()
        await eventually(
            lambda: any(name in fields[b"e"] for _, fields in client.xrange("{p0}:hooks-dead")),
            DEADLINE_S,
            "the dead letter",
        )
    places = await asyncio.to_thread(dead)
    assert len(places) == 1
    host.status = lambda event: 204

    done = await asyncio.to_thread(run_cli, stack, "replay", *places)

    assert done.stdout == "1 replayed\n"
    await eventually(lambda: tries() == 4, DEADLINE_S, "the replay")
    assert await asyncio.to_thread(dead) == []
    missing = await asyncio.to_thread(run_cli, stack, "replay", *places)
    assert missing.returncode == 1
    assert "not found" in missing.stderr


async def test_events_wait_while_the_host_is_down(stack: Stack, port: int, plain: Server) -> None:
    """A short absence costs no event, however many there are."""
    async with stack.chat_of(f"bob-{next(_refs)}", port=plain.port) as bob:
        chat = await direct(stack, bob)
        for number in range(20):
            await bob.say(chat, str(number))
        await bob.expect(lambda me: len(me.of_type("stored", chat=chat)) > 0)

    late = Host()
    async with serving(late, port):
        await eventually(lambda: len(of_chat(late, chat)) == 20, DEADLINE_S, "all events")


def run_cli(stack: Stack, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `chatserver webhooks`."""
    return subprocess.run(
        [sys.executable, "-m", "tests.support.cli", "webhooks", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", **stack.environment()},
    )
