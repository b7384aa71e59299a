"""A companion on the wire: what devices see while it answers, how they join, and stop it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from chatserver.features.companions.model import Changes
from tests.integration.features.companions.support import open_companions
from tests.support.rawchat import Failed, Fields, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import PATIENT, WORKERS, Stack, open_stack

ASSISTANT = {
    **PATIENT,
    # An answer without an end is as long as a message may be: it lasts for half a minute.
    "chatserver.features.companions.providers.registry.SCRIPTED_DELTA_MS": "50",
    "chatserver.features.companions.worker.responder.FLUSH_MS": "0",
    "CHAT_COMPANIONS_TOKENS_PER_DAY": "3000",
    "CHAT_COMPANIONS_RESPONSES_PER_USER_MAX": "1",
}
NewSession = Callable[[str], "asyncio.Future[str]"]


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with two gateways, and a worker that answers."""
    folder: Path = tmp_path_factory.mktemp("talking")
    workers = (WORKERS, ("assistant",))
    with open_stack(folder, gateways=2, fsync="no", workers=workers, env=ASSISTANT) as made:
        yield made


@pytest.fixture
async def phone(talking: Stack) -> AsyncIterator[RawChat]:
    """A device of a new user."""
    async with talking.chat_of(f"alice-{secrets.token_hex(4)}") as device:
        yield device


async def begin(stack: Stack, device: RawChat, model: str) -> str:
    """Begin a session with a new companion; return its chat."""
    id_ = f"ai-{secrets.token_hex(6)}"
    wanted = Changes(
        name="Ada", prompt="Be kind.", provider="scripted", model=model, answer_tokens_max=1000
    )
    async with open_companions(stack) as companions:
        await companions.create(id_, wanted)
    answer = await device.ask("create_session", companion=id_, ref=secrets.token_hex(6))
    chat: str = answer["session"]["chat"]
    return chat


def deltas_of(device: RawChat, chat: str) -> list[Fields]:
    """Deltas of responses in a chat that a device received."""
    return [
        frame
        for frame in device.of_type("signal")
        if frame["kind"] == "ai.delta" and frame["chat"] == chat
    ]


async def wait_delta(device: RawChat, chat: str, count: int = 1) -> None:
    """Wait for so many pieces."""
    await eventually(lambda: len(deltas_of(device, chat)) >= count, what="deltas")


async def wait_end(device: RawChat, chat: str) -> Fields:
    """Wait for the end signal of the newest response that a device knows; return it."""

    def last() -> list[Fields]:
        return [delta for delta in deltas_of(device, chat)[-1:] if "end" in delta]

    await eventually(last, what="an end")
    return last()[0]


async def wait_answer(device: RawChat, chat: str, count: int = 1) -> Fields:
    """Wait for a companion's message and return it."""

    def found() -> list[Fields]:
        return [
            event["message"]
            for event in device.of_type("event")
            if event["chat"] == chat and "ai" in event.get("message", {})
        ]

    await eventually(lambda: len(found()) >= count, what="an answer")
    return found()[count - 1]


def take_in(joined: Fields, deltas: list[Fields]) -> str:
    """The answer as a device that joined has it: what it was given, and the pieces after it."""
    text, index = joined["text"], joined["index"]
    for delta in deltas:
        if delta["turn"] == joined["turn"] and delta["index"] == index + 1:
            text, index = text + delta["text"], delta["index"]
    return str(text)


async def test_companion_answers_on_every_device_as_it_is_made(
    talking: Stack, phone: RawChat
) -> None:
    """Pieces in order, on both gateways; then the message, once, everywhere."""
    context = talking.chat_of(phone.user, device="context", port=talking.gateways[1].launch.port)
    async with context:
        chat = await begin(talking, phone, "story:20")
        await phone.say(chat, "tell me")
        messages = [await wait_answer(device, chat) for device in (phone, context)]
        for device in (phone, context):
            await wait_end(device, chat)
            deltas = deltas_of(device, chat)
            assert [delta["index"] for delta in deltas] == list(range(len(deltas)))
            assert "".join(delta["text"] for delta in deltas) == messages[0]["body"]

    assert messages[0] == messages[1]
    assert messages[0]["ai"]["model"] == "story:20" and messages[0]["reply_to"] == 1


async def test_companion_answer_is_joined_by_a_second_device(
    talking: Stack, phone: RawChat
) -> None:
    """In the middle, on another gateway: it sees the answer from the beginning."""
    chat = await begin(talking, phone, "endless")
    await phone.say(chat, "tell me")
    await wait_delta(phone, chat, 20)
    async with talking.chat_of(
        phone.user, device="context", port=talking.gateways[1].launch.port
    ) as context:
        joined = await context.ask("join_turn", chat=chat)
        assert joined["type"] == "turn" and joined["seq"] == 1
        assert joined["text"].startswith("word1 word2 ") and "end" not in joined
        await wait_delta(context, chat)
        await context.ask("stop", chat=chat)
        message = await wait_answer(context, chat)
        # What was told before its gateway was known to the worker it reads by joining again.
        later = await context.ask("join_turn", chat=chat)
        await wait_end(context, chat)
        assert message["body"].startswith(take_in(joined, deltas_of(context, chat)))
        assert (later["text"], later["turn"]) == (message["body"], joined["turn"])


async def test_companion_answer_goes_on_for_a_device_that_comes_back(
    talking: Stack, phone: RawChat
) -> None:
    """A page that is loaded anew sees the rest."""
    chat = await begin(talking, phone, "endless")
    await phone.say(chat, "tell me")
    await wait_delta(phone, chat, 10)
    await phone.reconnect()
    before = len(deltas_of(phone, chat))
    joined = await phone.ask("join_turn", chat=chat)
    await wait_delta(phone, chat, before + 5)
    await phone.ask("stop", chat=chat)
    message = await wait_answer(phone, chat)
    await wait_end(phone, chat)

    # What was told while the worker did not know where it is it reads by joining again.
    later = await phone.ask("join_turn", chat=chat)
    assert message["body"].startswith(take_in(joined, deltas_of(phone, chat)[before:]))
    assert (later["text"], later["turn"]) == (message["body"], joined["turn"])


async def test_companion_is_stopped_by_any_device(talking: Stack, phone: RawChat) -> None:
    """The text so far is the message, marked as stopped; the session continues."""
    chat = await begin(talking, phone, "endless")
    await phone.say(chat, "tell me")
    await wait_delta(phone, chat, 5)
    async with talking.chat_of(phone.user, device="context") as context:
        assert (await context.ask("stop", chat=chat))["type"] == "ok"
        message = await wait_answer(phone, chat)

    assert message["ai"]["end"] == "stopped"
    assert message["body"].startswith("word1 word2 ")
    assert (await wait_end(phone, chat))["end"] == "stopped"
    await phone.say(chat, "and now?")
    await wait_delta(phone, chat, len(deltas_of(phone, chat)) + 1)
    await phone.ask("stop", chat=chat)


async def test_companion_budget_is_answered_rate_limited(talking: Stack, phone: RawChat) -> None:
    """With the time when there are tokens again; and nothing of the message was taken."""
    chat = await begin(talking, phone, "echo")
    await phone.say(chat, "x" * 3900)
    await wait_answer(phone, chat)
    ack = None

    async def is_settled() -> bool:
        nonlocal ack
        try:
            ack = await phone.ask_send(chat, f"r-{secrets.token_hex(4)}", "one more")
        except Failed as refused:
            return refused.code == "rate_limited" and "tokens for today" in refused.message
        return False

    await eventually(is_settled)
    with pytest.raises(Failed) as refused:
        await phone.say(chat, "one more")
    assert refused.value.is_temporary
    assert 0 < refused.value.fields["retry_after_ms"] <= 86_400_000


async def test_companion_one_answer_at_a_time_is_a_bound(talking: Stack, phone: RawChat) -> None:
    """A second session is refused during a response; the same session waits."""
    busy, other = await begin(talking, phone, "endless"), await begin(talking, phone, "echo")
    await phone.say(busy, "tell me")
    await wait_delta(phone, busy, 2)
    with pytest.raises(Failed) as refused:
        await phone.say(other, "hello")
    assert refused.value.code == "rate_limited"
    assert refused.value.fields["retry_after_ms"] == 1000
    await phone.say(busy, "and then?")

    await phone.ask("stop", chat=busy)
    await wait_answer(phone, busy)
    await wait_delta(phone, busy, len(deltas_of(phone, busy)) + 2)
    await phone.ask("stop", chat=busy)
    assert (await wait_answer(phone, busy, 2))["reply_to"] == 2


async def test_companion_retry_of_what_was_sent_is_not_refused(
    talking: Stack, phone: RawChat
) -> None:
    """A lost ack loses no message, whatever the budget is now."""
    chat, other = await begin(talking, phone, "endless"), await begin(talking, phone, "echo")
    first = await phone.say(other, "hello", ref="once")
    await wait_answer(phone, other)

    async def is_taken() -> bool:
        # The answer is counted as being made until a moment after it came.
        with contextlib.suppress(Failed):
            await phone.say(chat, "tell me")
            return True
        return False

    await eventually(is_taken)  # type: ignore[arg-type]  # mypy loses the type variable
    await wait_delta(phone, chat, 2)

    again = await phone.ask_send(other, "once", "hello")

    assert again["dup"] and again["seq"] == first["seq"]
    await phone.ask("stop", chat=chat)


async def test_companion_turns_are_for_members(talking: Stack, phone: RawChat) -> None:
    """Non-members cannot join or stop a response; without one there is nothing to join."""
    chat = await begin(talking, phone, "echo")
    nothing = await phone.ask("join_turn", chat=chat)
    async with talking.chat_of("mallory") as mallory:
        for frame in ("join_turn", "stop"):
            with pytest.raises(Failed) as refused:
                await mallory.ask(frame, chat=chat)
            assert refused.value.code == "not_found"

    assert (nothing["turn"], nothing["text"]) == ("", "")
