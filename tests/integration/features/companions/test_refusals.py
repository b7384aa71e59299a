"""A refused message is never part of a later request to a model, and every request is guarded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.domain.ids import ChatId
from chatserver.features.companions.companion_options import CompanionOptions
from chatserver.features.companions.container import CompanionContainer
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.warm.support import Tables
from tests.support.servers.model_servers import (
    ModelServer,
    Step,
    bedrock_answer,
    moderation,
    openai_answer,
)
from tests.support.servers.processes import eventually

REFUSED = "how to pick a lock"
AGAIN = "please answer my last message"
NO = "Not this."  # the guardrail's text
MODERATED = {
    "provider": "openai",
    "model": "model.one",
    "options": CompanionOptions(moderation_model="omni-moderation-latest"),
}
GUARDED = {
    "provider": "bedrock",
    "model": "model.one",
    "options": CompanionOptions(guardrail="gr1abc", guardrail_version="3"),
}
GUARDRAIL = {"guardrailIdentifier": "gr1abc", "guardrailVersion": "3"}


def list_guarded(body: dict[str, Any]) -> list[str]:
    """Return the texts that the guardrail checks: those marked, or all if none is."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    marked = [each["guardContent"]["text"]["text"] for each in blocks if "guardContent" in each]
    return marked or [block["text"] for block in blocks]


def respond_openai(path: str, body: dict[str, Any]) -> Step:
    """Flag what should be refused, and answer everything else."""
    if path.endswith("/moderations"):
        return moderation(flagged=REFUSED in body["input"])
    return openai_answer("Yes.")


def respond_bedrock(_: str, body: dict[str, Any]) -> Step:
    """Refuse if a checked text should be refused, and answer everything else."""
    if any(REFUSED in text for text in list_guarded(body)):
        return bedrock_answer(NO, stop="guardrail_intervened")
    return bedrock_answer("Yes.")


@pytest.fixture
async def moderated(
    redis_url: str, tables: Tables, openai_server: ModelServer
) -> AsyncIterator[AssistantWorld]:
    """A world whose OpenAI server moderates; extractions and summaries follow soon."""
    openai_server.respond = respond_openai
    async with open_assistant_world(
        redis_url,
        tables.settings,
        openai_url=f"{openai_server.url}/v1",
        openai_key="k",
        memory_messages=3,
        context_messages_max=8,
    ) as world:
        yield world


@pytest.fixture
async def guarded(
    redis_url: str, tables: Tables, bedrock_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AssistantWorld]:
    """A world whose Bedrock server has a guardrail; extractions and summaries follow soon."""
    bedrock_server.respond = respond_bedrock
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", bedrock_server.url)
    async with open_assistant_world(
        redis_url, tables.settings, memory_messages=3, context_messages_max=8
    ) as world:
        yield world


async def exchange(world: AssistantWorld, chat: ChatId, *texts: str) -> list[str]:
    """Send messages; wait for the response to each. Return how each response ended."""
    before = len(await world.responses(chat))
    for number, text in enumerate(texts, start=1):
        await world.send(chat, text)
        await world.wait_for_responses(chat, before + number)
    responses = await world.responses(chat)
    return [each.ai.end for each in responses[before:] if each.ai is not None]


async def wait_for_summary(world: AssistantWorld, chat: ChatId) -> None:
    async def is_written() -> bool:
        return await world.container.get(CompanionContainer).summaries.find(chat) is not None

    await eventually(is_written, what="the summary is written")


async def end_session(world: AssistantWorld, chat: ChatId) -> None:
    """End the session and wait until its messages have been extracted."""
    session = await world.container.get(CompanionContainer).catalog.find_session_by_chat(chat)
    assert session is not None
    await world.container.get(CompanionContainer).sessions.delete(world.alice, session.companion)
    await world.wait_until_idle()


async def test_moderated_message_is_in_no_later_model_request(
    moderated: AssistantWorld, openai_server: ModelServer
) -> None:
    """Neither responses nor summaries nor the memory tell the model what was flagged."""
    chat = await moderated.session(**MODERATED)
    async with moderated.running_worker():
        ends = await exchange(
            moderated, chat, "hello", REFUSED, AGAIN, "four", "five", "six", "seven"
        )
        await wait_for_summary(moderated, chat)
        await end_session(moderated, chat)

    assert ends == ["done", "refused", *["done"] * 5]
    told = [json.dumps(body) for path, body in openai_server.calls if "completions" in path]
    assert not [body for body in told if REFUSED in body]
    assert any(AGAIN in body for body in told)


async def test_every_openai_request_is_moderated_first(
    moderated: AssistantWorld, openai_server: ModelServer
) -> None:
    """Also those that extract the memory and write a summary."""
    chat = await moderated.session(**MODERATED)
    async with moderated.running_worker():
        await exchange(moderated, chat, *(f"number {n}" for n in range(8)))
        await wait_for_summary(moderated, chat)
        await end_session(moderated, chat)

    paths = [path for path, _ in openai_server.calls]
    assert paths[::2] == ["/v1/moderations"] * (len(paths) // 2)
    assert paths[1::2] == ["/v1/chat/completions"] * (len(paths) // 2)
    assert len(paths) // 2 > 8 + 1  # responses, a summary, the memory


async def test_guardrail_refuses_one_exchange_and_the_session_continues(
    guarded: AssistantWorld, bedrock_server: ModelServer
) -> None:
    """The guardrail checks the newest message only, and gets nothing that it has refused."""
    chat = await guarded.session(**GUARDED)
    async with guarded.running_worker():
        ends = await exchange(guarded, chat, "hello", REFUSED, AGAIN, "four", "five", "six")
        await wait_for_summary(guarded, chat)
        await end_session(guarded, chat)

    assert ends == ["done", "refused", *["done"] * 4]
    bodies = [body for _, body in bedrock_server.calls]
    assert all(body["guardrailConfig"] == GUARDRAIL for body in bodies)
    told = [json.dumps(body) for body in bodies]
    assert [index for index, body in enumerate(told) if REFUSED in body] == [1]
    assert not [body for body in told if NO in body]
    assert list_guarded(bodies[2]) == [AGAIN] and len(bodies[2]["messages"]) == 3
    assert bedrock_server.faults == []


async def test_edited_message_is_checked_again(
    guarded: AssistantWorld, bedrock_server: ModelServer
) -> None:
    """An accepted message that is edited to a refused one is refused, then left out."""
    chat = await guarded.session(**GUARDED)
    async with guarded.running_worker():
        await exchange(guarded, chat, "hello")
        await guarded.change(chat, 1, "edit", REFUSED)
        ends = await exchange(guarded, chat, "two", "three")

    assert ends == ["refused", "done"]
    _, second, third = (body for _, body in bedrock_server.calls)
    assert list_guarded(second) == [REFUSED, "two"]
    assert list_guarded(third) == ["three"] and REFUSED not in json.dumps(third)
