"""Tool calls of companions: signature, limits, idempotency key, and images from S3."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from chatserver import config
from chatserver.api.message_sending import send_message
from chatserver.cold.bucket import apply_bucket
from chatserver.domain.clock import SystemClock
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, new_id
from chatserver.features.companions.companion_options import CompanionOptions, Tool
from chatserver.features.companions.worker.tool_calls import CALLS_MAX
from chatserver.features.webhooks.client import HEADER, is_signed
from chatserver.features.webhooks.settings import Webhooks
from chatserver.protocol import frames
from tests.integration.features.attachments.support import FileStack, cold_settings, picture
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.features.companions.test_worker_kill import kill_worker_at
from tests.integration.warm.support import Tables
from tests.support.servers.model_servers import (
    SSE,
    ModelServer,
    open_model_server,
    openai_answer,
    openai_tool_calls,
)
from tests.support.servers.processes import eventually

SECRET = "w" * 40
BERLIN = ("call-1", "weather", '{"city": "Berlin"}')


class Host:
    """A stub of the host application with one tool; it records the calls."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.answer: Callable[[], web.Response] = lambda: web.json_response({"sky": "blue"})

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        assert is_signed(SECRET.encode(), request.headers[HEADER], body, SystemClock().time())
        self.keys.append(request.headers["Idempotency-Key"])
        self.calls.append(json.loads(body))
        return self.answer()


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    made, app = Host(), web.Application()
    app.router.add_post("/weather", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/weather"
    yield made
    await runner.cleanup()


@pytest.fixture
async def models() -> AsyncIterator[ModelServer]:
    async with open_model_server(SSE) as server:
        yield server


@contextlib.asynccontextmanager
async def open_tool_world(
    redis_url: str, tables: Tables, models: ModelServer, allowed: str = "127.0.0.1", **more: Any
) -> AsyncIterator[AssistantWorld]:
    """Open a world whose worker uses the stub model and may call the host application."""
    sections = {
        "outbound": config.Outbound(allow_private=[allowed]),
        "webhooks": Webhooks(secret=SecretStr(SECRET)),
        **more,
    }
    url = f"{models.url}/v1"
    async with open_assistant_world(redis_url, tables.settings, sections, openai_url=url) as world:
        world.environment = {
            "CHAT_OUTBOUND_ALLOW_PRIVATE": json.dumps([allowed]),
            "CHAT_WEBHOOKS_SECRET": SECRET,
        }
        yield world


def with_tool(host: Host, **more: Any) -> CompanionOptions:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = Tool(name="weather", description="Weather", url=host.url, input_schema=schema)
    return CompanionOptions(memory=False, tools=(tool,), **more)


async def create_companion(world: AssistantWorld, options: CompanionOptions) -> CompanionId:
    return await world.companion("gpt", provider="openai", options=options)


def tool_results(models: ModelServer) -> list[str]:
    """Return the tool results in the last request to the model."""
    _, body = models.calls[-1]
    return [each["content"] for each in body["messages"] if each["role"] == "tool"]


async def test_tool_result_is_given_to_the_model(
    redis_url: str, tables: Tables, host: Host, models: ModelServer
) -> None:
    """The signals and the message have the name of the tool."""
    models.set_responses(openai_tool_calls(BERLIN, text="Let me look. "))
    models.set_responses(openai_answer("It is ", "blue."))
    async with open_tool_world(redis_url, tables, models) as world:
        ada = await create_companion(world, with_tool(host))
        chat = await world.begin(ada)
        await world.send(chat, "How is Berlin?")
        async with world.running_worker():
            (answer,) = await world.wait_for_responses(chat, 1)
            await eventually(lambda: world.signals(chat)[-1].end)
        signals = world.signals(chat)

    assert answer.body == "Let me look. It is blue."
    assert answer.ai is not None
    assert (answer.ai.end, answer.ai.tools) == ("done", ["weather"])
    assert (answer.ai.tokens_in, answer.ai.tokens_out) == (14, 6)
    (call,) = host.calls
    assert call == {
        "type": "tool_call",
        "id": host.keys[0],
        "tool": "weather",
        "input": {"city": "Berlin"},
        "companion": ada,
        "version": 1,
        "chat": chat,
        "user": world.alice,
        "seq": 1,
    }
    assert tool_results(models) == ['{"sky": "blue"}']
    assert models.faults == []
    assert [signal.index for signal in signals] == list(range(len(signals)))
    assert [signal.tool for signal in signals if signal.tool] == ["weather"]


async def test_worker_killed_after_a_tool_call_repeats_it_with_the_same_key(
    redis_url: str, tables: Tables, host: Host, models: ModelServer
) -> None:
    """The host application can recognize the repeat, and the user gets one response."""
    models.set_responses(openai_tool_calls(BERLIN))
    models.set_responses(openai_tool_calls(("other-id", *BERLIN[1:])))
    models.set_responses(openai_answer("Blue."))
    async with open_tool_world(redis_url, tables, models) as world:
        chat = await world.begin(await create_companion(world, with_tool(host)))
        await world.send(chat, "How is Berlin?")
        await kill_worker_at(world, "assistant.after_tool:kill")
        assert len(host.calls) == 1
        async with world.running_worker("a2"):
            answers = await world.wait_for_responses(chat, 1)

    assert [answer.body for answer in answers] == ["Blue."]
    assert len(host.keys) == 2 and host.keys[0] == host.keys[1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda: web.Response(status=500), "error: the tool returned status 500"),
        (lambda: web.Response(body=b"x" * 20_000), "error: the response is longer than 16384"),
        (lambda: web.Response(status=302, headers={"Location": "/"}), "returned status 302"),
    ],
)
async def test_tool_failure_is_reported_to_the_model(
    redis_url: str,
    tables: Tables,
    host: Host,
    models: ModelServer,
    answer: Callable[[], web.Response],
    expected: str,
) -> None:
    """The response continues after the failure."""
    host.answer = answer
    models.set_responses(openai_tool_calls(BERLIN))
    models.set_responses(openai_answer("I don't know."))
    async with open_tool_world(redis_url, tables, models) as world:
        chat = await world.begin(await create_companion(world, with_tool(host)))
        await world.send(chat, "How is Berlin?")
        async with world.running_worker():
            (message,) = await world.wait_for_responses(chat, 1)

    assert message.body == "I don't know."
    assert expected in tool_results(models)[0]


async def test_tool_at_a_private_address_is_not_called(
    redis_url: str, tables: Tables, host: Host, models: ModelServer
) -> None:
    """An unknown tool or invalid input is not called either; the model gets the reason."""
    models.set_responses(
        openai_tool_calls(BERLIN, ("call-2", "unknown", "{}"), ("call-3", "weather", "[]"))
    )
    models.set_responses(openai_answer("I don't know."))
    async with open_tool_world(redis_url, tables, models, allowed="10.9.9.9") as world:
        chat = await world.begin(await create_companion(world, with_tool(host)))
        await world.send(chat, "How is Berlin?")
        async with world.running_worker():
            await world.wait_for_responses(chat, 1)

    private, unknown, invalid = tool_results(models)
    assert "this address or port is not allowed" in private
    assert "there is no such tool" in unknown and "not a JSON object" in invalid
    assert host.calls == []


async def test_tool_calls_of_a_response_are_limited(
    redis_url: str, tables: Tables, host: Host, models: ModelServer
) -> None:
    """A model that always calls tools is stopped, and the user gets a message."""
    models.set_responses(openai_tool_calls(BERLIN))  # in response to each request
    async with open_tool_world(redis_url, tables, models) as world:
        chat = await world.begin(await create_companion(world, with_tool(host)))
        await world.send(chat, "How is Berlin?")
        async with world.running_worker():
            (message,) = await world.wait_for_responses(chat, 1)

    assert message.body == "I have no answer to that."
    assert len(host.calls) == CALLS_MAX and len(set(host.keys)) == CALLS_MAX
    assert len(models.calls) == CALLS_MAX + 1


async def test_images_from_s3_are_limited_by_number(
    redis_url: str, tables: Tables, s3: str, models: ModelServer
) -> None:
    """The model gets the newest images, or only their names if it does not support images."""
    cold = cold_settings(s3)
    models.set_responses(openai_answer("A teal square."))
    async with (
        open_tool_world(redis_url, tables, models, cold=cold) as world,
        aiohttp.ClientSession() as http,
    ):
        container = world.container
        await apply_bucket(container.store, cold)
        files = FileStack(container, container, container.settings, http, container.store)
        chats = [
            await world.begin(
                await create_companion(world, CompanionOptions(memory=False, images_max=count))
            )
            for count in (2, 0)
        ]
        pictures = [picture((64, 32 + number)) for number in range(3)]
        for chat in chats:
            await send_images(world, files, chat, pictures)
        async with world.running_worker():
            for chat in chats:
                await world.wait_for_responses(chat, 1)

    with_images, without_images = sorted(
        (body for _, body in models.calls), key=lambda body: -len(str(body))
    )
    parts = with_images["messages"][-1]["content"]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert len(urls) == 2 and all(url.startswith("data:image/png;base64,") for url in urls)
    assert "what is this?" in parts[-1]["text"]
    assert "[file: 0.png]" in without_images["messages"][-1]["content"]
    assert "base64" not in str(without_images)
    assert models.faults == []


async def send_images(
    world: AssistantWorld, files: FileStack, chat: ChatId, pictures: list[bytes]
) -> None:
    """Send pictures as Alice, the last one with a question."""
    for number, content in enumerate(pictures):
        file = await files.upload(world.alice, chat, content, f"{number}.png", "image/png")
        text = "what is this?" if number == len(pictures) - 1 else ""
        frame = frames.Send(0, chat, new_id(), text, attachments=[file.id])
        await send_message(world.container, world.alice, frame)
