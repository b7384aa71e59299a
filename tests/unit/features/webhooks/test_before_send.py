"""The webhook `before_send`, asked by a process: order, bounds, the policy and the breaker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.config import Webhooks
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.domain.messages import PendingDraft
from chatserver.errors import ChatError, Forbidden, Overloaded, Unavailable
from chatserver.features.webhooks.before_send import BeforeSendCheck, BeforeSendQueue
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as messages
from chatserver.service.messaging.service import Messaging

ALICE, CHAT = UserId("alice"), ChatId("c1")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Hook:
    """A host application that responds when the test decides."""

    def __init__(self) -> None:
        self.asked: list[messages.BeforeSend] = []
        self.waiting: list[asyncio.Future[messages.Verdict]] = []

    async def ask(self, question: messages.BeforeSend) -> messages.Verdict:
        self.asked.append(question)
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return await future


class Dead:
    """A host application that is not there."""

    def __init__(self) -> None:
        self.count = 0

    async def ask(self, question: messages.BeforeSend) -> messages.Verdict:
        self.count += 1
        raise Unavailable("nobody there")


class References:
    """References of earlier messages."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)

    async def find_digest(self, chat: ChatId, sender: UserId, ref: Ref) -> str | None:
        return "d" if ref in self.known else None


class Commits:
    """Records what would be committed."""

    def __init__(self, sent: list[tuple[str, str, str | None]]) -> None:
        self._sent = sent

    def submit(self, draft: PendingDraft, audience: object) -> None:
        text = draft.tail.split(b'"body":"')[1].split(b'"')[0].decode()
        self._sent.append((draft.ref, text, draft.made or None))


class Recorder(Messaging):
    """Sending that ends where messages would be committed, to chats that are all one audience."""

    retention_s = 0
    users: tuple[str, ...] = ()

    def __init__(self, before_send: BeforeSendCheck, in_flight_max: int = 100) -> None:
        self.sent: list[tuple[str, str, str | None]] = []
        fake: Any = self
        super().__init__(
            send_interceptor=BeforeSendQueue(before_send, in_flight_max),
            commits=Commits(self.sent),
            audiences=fake,
            inboxes=fake,
            undelivered=fake,
            devices=fake,
            large_chats=fake,
        )

    def find(self, chat: ChatId) -> object:
        return self


class Answers:
    """The outcome of each message."""

    def __init__(self) -> None:
        self.refused_: list[tuple[str, ChatError]] = []

    def acked(self, draft: PendingDraft, seq: int, ts: int, mid: str, *, dup: bool) -> None:
        raise AssertionError("nothing is committed here")

    def refused(self, draft: PendingDraft, error: ChatError) -> None:
        self.refused_.append((draft.ref, error))


def send(ref: str, body: str = "hello", chat: str = CHAT) -> frames.Send:
    return frames.Send(id=1, chat=chat, ref=ref, body=body)


def question(ref: str = "r1") -> messages.BeforeSend:
    return messages.BeforeSend(CHAT, ALICE, ref, "text", "hello")


async def turns(count: int = 3) -> None:
    """Let the loop go on."""
    for _ in range(count):
        await asyncio.sleep(0)


# order


@settings(max_examples=40, deadline=None)
@given(
    verdicts=st.lists(st.sampled_from(["accept", "change", "refuse"]), min_size=1, max_size=12),
    data=st.data(),
)
async def test_screened_messages_of_a_sender_keep_their_order_in_any_order_of_verdicts(
    verdicts: list[str], data: st.DataObject
) -> None:
    """Accepted messages are sent in the order of `send`, chat by chat (promise P3)."""
    hook, answers = Hook(), Answers()
    messaging = Recorder(
        BeforeSendCheck(verdicts=hook, references=References(), settings=Webhooks(), clock=Clock())
    )
    chats = [data.draw(st.sampled_from(["c1", "c2"])) for _ in verdicts]

    for number, chat in enumerate(chats):
        messaging.submit(ALICE, send(f"r{number}", str(number), chat), answers)
    await turns()
    for number in data.draw(st.permutations(range(len(verdicts)))):
        action = verdicts[number]
        body = "new" if action == "change" else None
        hook.waiting[number].set_result(messages.Verdict(action, body))  # type: ignore[arg-type]
        await turns(1)
    await messaging.drain()

    wanted = [f"r{number}" for number, action in enumerate(verdicts) if action != "refuse"]
    for chat in ("c1", "c2"):
        mine = [f"r{number}" for number, each in enumerate(chats) if each == chat]
        sent = [ref for ref, _, _ in messaging.sent if ref in mine]
        assert sent == [ref for ref in wanted if ref in mine]
    assert {ref for ref, _ in answers.refused_} == {
        f"r{number}" for number, action in enumerate(verdicts) if action == "refuse"
    }
    changed = [f"r{number}" for number, action in enumerate(verdicts) if action == "change"]
    assert sorted(ref for ref, text, made in messaging.sent if made and text == "new") == sorted(
        changed
    )


async def test_screened_message_does_not_wait_for_one_of_another_chat() -> None:
    """A verdict that does not come holds up one sender in one chat alone."""
    hook, answers = Hook(), Answers()
    messaging = Recorder(
        BeforeSendCheck(verdicts=hook, references=References(), settings=Webhooks(), clock=Clock())
    )
    messaging.submit(ALICE, send("r1", chat="c1"), answers)
    messaging.submit(ALICE, send("r2", chat="c2"), answers)
    messaging.submit(UserId("bob"), send("r3", chat="c1"), answers)
    await turns()

    for future in hook.waiting[1:]:
        future.set_result(messages.Verdict("accept"))
    await turns()

    assert [ref for ref, _, _ in messaging.sent] == ["r2", "r3"]
    hook.waiting[0].set_result(messages.Verdict("accept"))
    await messaging.drain()


async def test_screened_messages_beyond_the_bound_are_refused() -> None:
    """A hook that is slow costs memory for so many messages and no more."""
    hook, answers = Hook(), Answers()
    messaging = Recorder(
        BeforeSendCheck(verdicts=hook, references=References(), settings=Webhooks(), clock=Clock()),
        in_flight_max=2,
    )
    messaging.submit(ALICE, send("r1"), answers)
    messaging.submit(ALICE, send("r2"), answers)

    with pytest.raises(Overloaded):
        messaging.submit(ALICE, send("r3"), answers)

    await turns()
    for future in hook.waiting:
        future.set_result(messages.Verdict("accept"))
    await messaging.drain()
    messaging.submit(ALICE, send("r3"), answers)
    await turns()
    hook.waiting[-1].set_result(messages.Verdict("accept"))
    await messaging.drain()
    assert [ref for ref, _, _ in messaging.sent] == ["r1", "r2", "r3"]


# the policy and the breaker


async def test_check_without_an_answer_follows_the_policy() -> None:
    """Open lets it pass, closed refuses it for now."""
    opened = BeforeSendCheck(
        verdicts=Dead(), references=References(), settings=Webhooks(), clock=Clock()
    )
    closed = BeforeSendCheck(
        verdicts=Dead(),
        references=References(),
        settings=Webhooks(before_send_policy="closed"),
        clock=Clock(),
    )

    assert await opened.check(question()) == "hello"
    with pytest.raises(Unavailable):
        await closed.check(question())


@pytest.mark.constants({"chatserver.features.webhooks.before_send.BREAKER_FAILURES": 3})
async def test_check_after_failures_in_a_row_asks_nobody_for_a_while() -> None:
    """A dead hook costs its deadline a few times, not with each message."""
    hook, clock = Dead(), Clock()
    before_send = BeforeSendCheck(
        verdicts=hook,
        references=References(),
        settings=Webhooks(),
        clock=clock,
    )

    for _ in range(10):
        await before_send.check(question())
    clock.now += 11
    await before_send.check(question())

    assert hook.count == 4


async def test_check_that_refuses_what_was_sent_before_lets_it_pass() -> None:
    """The retry of a message that was acked is not refused (invariant I11)."""

    class Refusing:
        async def ask(self, question: messages.BeforeSend) -> messages.Verdict:
            return messages.Verdict("refuse", why="no")

    before_send = BeforeSendCheck(
        verdicts=Refusing(), references=References("r1"), settings=Webhooks(), clock=Clock()
    )

    assert await before_send.check(question("r1")) == "hello"
    with pytest.raises(Forbidden, match="body: no"):
        await before_send.check(question("r2"))
