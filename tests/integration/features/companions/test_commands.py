"""AI responses over the WebSocket: deltas, joining and stopping a response, and limits."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chatserver.features.companions.model import VersionChanges
from tests.integration.features.companions.support import open_companions
from tests.support.rawchat import Failed, RawChat, get_refusal
from tests.support.received_frames import Fields
from tests.support.servers.processes import eventually
from tests.support.stack import PATIENT, WORKERS, Stack, open_stack

ASSISTANT = {
    **PATIENT,
    # The response of model `endless` ends at the maximum length, after half a minute.
    "chatserver.features.companions.providers.registry.SCRIPTED_DELTA_MS": "50",
    "chatserver.features.companions.worker.responder.FLUSH_MS": "0",
    "CHAT_COMPANIONS_TOKENS_PER_DAY": "3000",
    "CHAT_COMPANIONS_RESPONSES_PER_USER_MAX": "1",
}


@pytest.fixture(scope="module")
def assistant_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with two gateways and an assistant worker."""
    folder: Path = tmp_path_factory.mktemp("assistant")
    workers = (WORKERS, ("assistant",))
    with open_stack(folder, gateways=2, fsync="no", workers=workers, env=ASSISTANT) as made:
        yield made


@pytest.fixture
async def phone(assistant_stack: Stack) -> AsyncIterator[RawChat]:
    async with assistant_stack.chat_of(f"alice-{secrets.token_hex(4)}") as device:
        yield device


async def create_session(stack: Stack, device: RawChat, model: str) -> str:
    """Create a session with a new companion; return its chat."""
    id_ = f"ai-{secrets.token_hex(6)}"
    fields = VersionChanges(
        name="Ada", prompt="Be kind.", provider="scripted", model=model, answer_tokens_max=1000
    )
    async with open_companions(stack) as companions:
        await companions.create(id_, fields)
    answer = await device.request("create_session", companion=id_, ref=secrets.token_hex(6))
    chat: str = answer["session"]["chat"]
    return chat


def deltas_of(device: RawChat, chat: str) -> list[Fields]:
    return [
        frame
        for frame in device.of_type("signal")
        if frame["kind"] == "ai.delta" and frame["chat"] == chat
    ]


async def wait_for_deltas(device: RawChat, chat: str, count: int = 1) -> None:
    await eventually(lambda: len(deltas_of(device, chat)) >= count, what="deltas")


async def wait_for_end(device: RawChat, chat: str) -> Fields:
    """Wait for the end signal of the newest response that a device received; return it."""

    def last() -> list[Fields]:
        return [delta for delta in deltas_of(device, chat)[-1:] if "end" in delta]

    await eventually(last, what="the end signal")
    return last()[0]


async def wait_for_response(device: RawChat, chat: str, count: int = 1) -> Fields:
    """Wait for the companion's message number `count` and return it."""

    def found() -> list[Fields]:
        return [
            event["message"]
            for event in device.of_type("event")
            if event["chat"] == chat and "ai" in event.get("message", {})
        ]

    await eventually(lambda: len(found()) >= count, what=f"{count} responses")
    return found()[count - 1]


def text_after_join(joined: Fields, deltas: list[Fields]) -> str:
    """Return the text that a device shows: the reply to `join_turn` and the deltas after it."""
    text, index = joined["text"], joined["index"]
    for delta in deltas:
        if delta["turn"] == joined["turn"] and delta["index"] == index + 1:
            text, index = text + delta["text"], delta["index"]
    return str(text)


async def test_companion_response_streams_to_every_device(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """Deltas arrive in order on both gateways, and their text is that of the message."""
    tablet = assistant_stack.chat_of(
        phone.user, device="tablet", port=assistant_stack.gateways[1].launch.port
    )
    async with tablet:
        chat = await create_session(assistant_stack, phone, "story:20")
        await phone.send(chat, "tell me")
        messages = [await wait_for_response(device, chat) for device in (phone, tablet)]
        for device in (phone, tablet):
            await wait_for_end(device, chat)
            deltas = deltas_of(device, chat)
            assert [delta["index"] for delta in deltas] == list(range(len(deltas)))
            assert "".join(delta["text"] for delta in deltas) == messages[0]["body"]

    assert messages[0] == messages[1]
    assert messages[0]["ai"]["model"] == "story:20" and messages[0]["reply_to"] == 1


async def test_companion_response_is_joined_by_a_second_device(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """Another device joins during the response on another gateway and gets the whole text."""
    chat = await create_session(assistant_stack, phone, "endless")
    await phone.send(chat, "tell me")
    await wait_for_deltas(phone, chat, 20)
    async with assistant_stack.chat_of(
        phone.user, device="tablet", port=assistant_stack.gateways[1].launch.port
    ) as tablet:
        joined = await tablet.request("join_turn", chat=chat)
        assert joined["type"] == "turn" and joined["seq"] == 1
        assert joined["text"].startswith("word1 word2 ") and "end" not in joined
        await wait_for_deltas(tablet, chat)
        await tablet.request("stop", chat=chat)
        message = await wait_for_response(tablet, chat)
        # Deltas sent before the worker knew this gateway are missing; a second join returns them.
        later = await tablet.request("join_turn", chat=chat)
        await wait_for_end(tablet, chat)
        assert message["body"].startswith(text_after_join(joined, deltas_of(tablet, chat)))
        assert (later["text"], later["turn"]) == (message["body"], joined["turn"])


async def test_companion_response_continues_for_a_device_that_reconnects(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """This happens when a web page is reloaded."""
    chat = await create_session(assistant_stack, phone, "endless")
    await phone.send(chat, "tell me")
    await wait_for_deltas(phone, chat, 10)
    await phone.reconnect()
    before = len(deltas_of(phone, chat))
    joined = await phone.request("join_turn", chat=chat)
    await wait_for_deltas(phone, chat, before + 5)
    await phone.request("stop", chat=chat)
    message = await wait_for_response(phone, chat)
    await wait_for_end(phone, chat)

    # Deltas sent before the worker knew the new connection are missing; a second join returns them.
    later = await phone.request("join_turn", chat=chat)
    assert message["body"].startswith(text_after_join(joined, deltas_of(phone, chat)[before:]))
    assert (later["text"], later["turn"]) == (message["body"], joined["turn"])


async def test_companion_response_is_stopped_by_any_device(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """The text up to the stop becomes the message, marked as stopped; the session continues."""
    chat = await create_session(assistant_stack, phone, "endless")
    await phone.send(chat, "tell me")
    await wait_for_deltas(phone, chat, 5)
    async with assistant_stack.chat_of(phone.user, device="tablet") as tablet:
        assert (await tablet.request("stop", chat=chat))["type"] == "ok"
        message = await wait_for_response(phone, chat)

    assert message["ai"]["end"] == "stopped"
    assert message["body"].startswith("word1 word2 ")
    assert (await wait_for_end(phone, chat))["end"] == "stopped"
    await phone.send(chat, "and now?")
    await wait_for_deltas(phone, chat, len(deltas_of(phone, chat)) + 1)
    await phone.request("stop", chat=chat)


async def test_companion_send_beyond_the_budget_is_rate_limited(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """The error has the time until enough tokens are available."""
    chat = await create_session(assistant_stack, phone, "echo")
    await phone.send(chat, "x" * 3900)
    await wait_for_response(phone, chat)
    ack = None

    async def is_settled() -> bool:
        nonlocal ack
        try:
            ack = await phone.send_unrecorded(chat, f"r-{secrets.token_hex(4)}", "one more")
        except Failed as refused:
            return refused.code == "rate_limited" and "tokens for today" in refused.message
        return False

    await eventually(is_settled)
    refused = await get_refusal(phone.send(chat, "one more"))
    assert refused.is_temporary
    assert 0 < refused.fields["retry_after_ms"] <= 86_400_000


async def test_companion_responses_at_once_are_limited(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """A send to a second session is refused. A send to the same session waits."""
    busy, other = (
        await create_session(assistant_stack, phone, "endless"),
        await create_session(assistant_stack, phone, "echo"),
    )
    await phone.send(busy, "tell me")
    await wait_for_deltas(phone, busy, 2)
    refused = await get_refusal(phone.send(other, "hello"))
    assert refused.code == "rate_limited"
    assert refused.fields["retry_after_ms"] == 1000
    await phone.send(busy, "and then?")

    await phone.request("stop", chat=busy)
    await wait_for_response(phone, busy)
    await wait_for_deltas(phone, busy, len(deltas_of(phone, busy)) + 2)
    await phone.request("stop", chat=busy)
    assert (await wait_for_response(phone, busy, 2))["reply_to"] == 2


async def test_companion_retry_of_an_acked_send_is_not_refused(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """A retry after a lost ack is acked as a duplicate, although a new send would be refused."""
    chat, other = (
        await create_session(assistant_stack, phone, "endless"),
        await create_session(assistant_stack, phone, "echo"),
    )
    first = await phone.send(other, "hello", ref="once")
    await wait_for_response(phone, other)

    async def is_accepted() -> bool:
        # The first response counts until shortly after its message arrives.
        with contextlib.suppress(Failed):
            await phone.send(chat, "tell me")
            return True
        return False

    await eventually(is_accepted)  # type: ignore[arg-type]  # mypy loses the type variable
    await wait_for_deltas(phone, chat, 2)

    again = await phone.send_unrecorded(other, "once", "hello")

    assert again["dup"] and again["seq"] == first["seq"]
    await phone.request("stop", chat=chat)


async def test_companion_response_is_hidden_from_non_members(
    assistant_stack: Stack, phone: RawChat
) -> None:
    """They cannot join or stop it. A member who joins when there is no response gets empty text."""
    chat = await create_session(assistant_stack, phone, "echo")
    nothing = await phone.request("join_turn", chat=chat)
    async with assistant_stack.chat_of("mallory") as mallory:
        for frame in ("join_turn", "stop"):
            refused = await get_refusal(mallory.request(frame, chat=chat))
            assert refused.code == "not_found"

    assert (nothing["turn"], nothing["text"]) == ("", "")
