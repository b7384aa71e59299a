"""The `before_send` webhook: order, limits, policy and circuit breaker."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.domain.access.caller import RequestCaller
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.domain.messages import PendingDraft
from chatserver.errors import ChatError, Forbidden, Overloaded, Unavailable
from chatserver.features.webhooks.before_send import BeforeSendCheck, BeforeSendQueue, VerdictSource
from chatserver.features.webhooks.settings import Webhooks
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as messages
from chatserver.service.messaging.message_sender import MessageSender
from tests.support.fake_clocks import FakeClock

ALICE, CHAT = UserId("alice"), ChatId("c1")


class StubApplication:
    """A host application whose responses the test sets."""

    def __init__(self) -> None:
        self.requests: list[messages.BeforeSend] = []
        self.waiting: list[asyncio.Future[messages.Verdict]] = []

    async def request_verdict(self, question: messages.BeforeSend) -> messages.Verdict:
        self.requests.append(question)
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return await future


class DownApplication:
    """A host application that is down."""

    def __init__(self) -> None:
        self.count = 0

    async def request_verdict(self, question: messages.BeforeSend) -> messages.Verdict:
        self.count += 1
        raise Unavailable("the application is down")


class StubReferences:
    """References of earlier messages."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)

    async def find_digest(self, chat: ChatId, sender: UserId, ref: Ref) -> str | None:
        return "d" if ref in self.known else None


class StubCommits:
    """Records the messages instead of committing them."""

    def __init__(self, sent: list[tuple[str, str, str | None]]) -> None:
        self._sent = sent

    def submit(self, draft: PendingDraft, audience: object) -> None:
        text = draft.tail.split(b'"body":"')[1].split(b'"')[0].decode()
        self._sent.append((draft.ref, text, draft.changed_digest or None))


class RecordingMessaging(MessageSender):
    """Messaging without commits, in which all chats have the same audience."""

    retention_s = 0
    users: tuple[str, ...] = ()

    def __init__(self, before_send: BeforeSendCheck, in_flight_max: int = 100) -> None:
        self.sent: list[tuple[str, str, str | None]] = []
        fake: Any = self
        super().__init__(
            send_interceptor=BeforeSendQueue(before_send, in_flight_max),
            make_commits=lambda _: StubCommits(self.sent),
            audiences=fake,
            inboxes=fake,
            undelivered=fake,
            devices=fake,
            large_chats=fake,
        )

    def find(self, chat: ChatId) -> object:
        return self


class Outcomes:
    """Records the refused messages."""

    def __init__(self) -> None:
        self.refusals: list[tuple[str, ChatError]] = []

    def get_caller(self) -> RequestCaller:
        return RequestCaller(ALICE)

    def on_acked(self, draft: PendingDraft, seq: int, ts: int, mid: str, *, dup: bool) -> None:
        raise AssertionError("no message is committed in these tests")

    def on_refused(self, request_id: int, ref: str, error: ChatError) -> None:
        self.refusals.append((ref, error))


def send(ref: str, body: str = "hello", chat: str = CHAT) -> frames.Send:
    return frames.Send(id=1, chat=chat, ref=ref, body=body)


def question(ref: str = "r1") -> messages.BeforeSend:
    return messages.BeforeSend(CHAT, ALICE, ref, "text", "hello")


def check_of(
    verdicts: VerdictSource,
    *known: str,
    policy: Literal["open", "closed"] = "open",
    clock: FakeClock | None = None,
) -> BeforeSendCheck:
    """Return a check by an application, which knows the references of earlier messages."""
    return BeforeSendCheck(
        verdicts=verdicts,
        references=StubReferences(*known),
        settings=Webhooks(before_send_policy=policy),
        clock=clock or FakeClock(),
    )


async def run_loop(count: int = 3) -> None:
    """Run the event loop a few times."""
    for _ in range(count):
        await asyncio.sleep(0)


@settings(max_examples=40, deadline=None)
@given(
    verdicts=st.lists(st.sampled_from(["accept", "change", "refuse"]), min_size=1, max_size=12),
    data=st.data(),
)
async def test_checked_messages_keep_their_order_for_any_order_of_verdicts(
    verdicts: list[str], data: st.DataObject
) -> None:
    """Accepted messages are sent in the order of `send`, chat by chat (guarantee P3)."""
    application, outcomes = StubApplication(), Outcomes()
    messaging = RecordingMessaging(check_of(application))
    chats = [data.draw(st.sampled_from(["c1", "c2"])) for _ in verdicts]

    for number, chat in enumerate(chats):
        messaging.submit(ALICE, send(f"r{number}", str(number), chat), outcomes)
    await run_loop()
    for number in data.draw(st.permutations(range(len(verdicts)))):
        action = verdicts[number]
        body = "new" if action == "change" else None
        application.waiting[number].set_result(messages.Verdict(action, body))  # type: ignore[arg-type]
        await run_loop(1)
    await messaging.drain()

    accepted = [f"r{number}" for number, action in enumerate(verdicts) if action != "refuse"]
    for chat in ("c1", "c2"):
        chat_refs = [f"r{number}" for number, each in enumerate(chats) if each == chat]
        sent = [ref for ref, _, _ in messaging.sent if ref in chat_refs]
        assert sent == [ref for ref in accepted if ref in chat_refs]
    assert {ref for ref, _ in outcomes.refusals} == {
        f"r{number}" for number, action in enumerate(verdicts) if action == "refuse"
    }
    changed = [f"r{number}" for number, action in enumerate(verdicts) if action == "change"]
    assert sorted(
        ref for ref, text, digest in messaging.sent if digest and text == "new"
    ) == sorted(changed)


async def test_checked_message_does_not_wait_for_one_of_another_chat() -> None:
    """A missing verdict delays one sender in one chat only."""
    application, outcomes = StubApplication(), Outcomes()
    messaging = RecordingMessaging(check_of(application))
    messaging.submit(ALICE, send("r1", chat="c1"), outcomes)
    messaging.submit(ALICE, send("r2", chat="c2"), outcomes)
    messaging.submit(UserId("bob"), send("r3", chat="c1"), outcomes)
    await run_loop()

    for future in application.waiting[1:]:
        future.set_result(messages.Verdict("accept"))
    await run_loop()

    assert [ref for ref, _, _ in messaging.sent] == ["r2", "r3"]
    application.waiting[0].set_result(messages.Verdict("accept"))
    await messaging.drain()


async def test_messages_beyond_the_check_limit_are_refused() -> None:
    """The memory for messages that wait for a slow application is limited."""
    application, outcomes = StubApplication(), Outcomes()
    messaging = RecordingMessaging(check_of(application), in_flight_max=2)
    messaging.submit(ALICE, send("r1"), outcomes)
    messaging.submit(ALICE, send("r2"), outcomes)

    with pytest.raises(Overloaded):
        messaging.submit(ALICE, send("r3"), outcomes)

    await run_loop()
    for future in application.waiting:
        future.set_result(messages.Verdict("accept"))
    await messaging.drain()
    messaging.submit(ALICE, send("r3"), outcomes)
    await run_loop()
    application.waiting[-1].set_result(messages.Verdict("accept"))
    await messaging.drain()
    assert [ref for ref, _, _ in messaging.sent] == ["r1", "r2", "r3"]


async def test_check_without_a_response_follows_the_policy() -> None:
    """`open` accepts the message, `closed` refuses it temporarily."""
    assert await check_of(DownApplication()).check(question()) == "hello"
    with pytest.raises(Unavailable):
        await check_of(DownApplication(), policy="closed").check(question())


@pytest.mark.constants({"chatserver.features.webhooks.before_send.BREAKER_FAILURES": 3})
async def test_check_after_repeated_failures_sends_no_requests_for_a_while() -> None:
    """A failed application delays a few messages, not each one."""
    application, clock = DownApplication(), FakeClock()
    before_send = check_of(application, clock=clock)

    for _ in range(10):
        await before_send.check(question())
    clock.now += 11
    await before_send.check(question())

    assert application.count == 4


async def test_refused_retry_of_an_acked_message_is_accepted() -> None:
    """The retry of an acked message must return its ack."""

    class RefusingApplication:
        async def request_verdict(self, question: messages.BeforeSend) -> messages.Verdict:
            return messages.Verdict("refuse", why="no")

    before_send = check_of(RefusingApplication(), "r1")

    assert await before_send.check(question("r1")) == "hello"
    with pytest.raises(Forbidden, match="body: no"):
        await before_send.check(question("r2"))
