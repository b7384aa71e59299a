"""Tools, images, guardrails and sampling in requests to the APIs of Bedrock and OpenAI."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest

from chatserver.features.companions.companion_options import CompanionOptions, Tool
from chatserver.features.companions.providers.interface import (
    Delta,
    Finish,
    Image,
    ModelMessage,
    ModelProvider,
    ModelRequest,
    ToolCall,
    ToolResult,
)
from tests.integration.features.companions.model_fixtures import Model
from tests.support.servers.model_servers import (
    bedrock_answer,
    bedrock_tool_use,
    moderation,
    openai_answer,
    openai_tool_calls,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
WEATHER = Tool(
    name="weather",
    description="Weather of a city",
    url="https://host.example/weather",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}},
)
OPTIONS = CompanionOptions(temperature=0.3, top_p=0.8, tools=(WEATHER,))
ASK = ModelRequest("model.one", "Be kind.", (ModelMessage("user", "Weather?"),), 50, OPTIONS)
CALL = ToolCall("call-1", "weather", '{"city": "Berlin"}')
SECOND = ToolCall("call-2", "weather", "")
EXCHANGE = (
    ModelMessage("user", "Weather?", images=(Image("image/png", PNG),)),
    ModelMessage("assistant", "Let me look.", calls=(CALL, SECOND)),
    ModelMessage(
        "user", "", results=(ToolResult("call-1", "sunny"), ToolResult("call-2", "error: no", True))
    ),
)


async def pieces_of(provider: ModelProvider, ask: ModelRequest) -> list[Any]:
    """Return everything that the provider yields except heartbeats."""
    async with contextlib.aclosing(provider.stream(ask)) as stream:
        return [piece async for piece in stream if piece != Delta("")]


async def test_bedrock_tool_calls_are_returned_with_their_input(bedrock: Model) -> None:
    """The input arrives in parts, and a response can have several calls."""
    uses = (("call-1", "weather", CALL.input), ("call-2", "weather", ""))
    bedrock.server.set_responses(bedrock_tool_use(*uses, text="Let me look."))
    pieces = await pieces_of(bedrock.provider, ASK)

    assert pieces == [Delta("Let me look."), CALL, SECOND, Finish("tools", 7, 3)]
    ((_, body),) = bedrock.server.calls
    assert body["inferenceConfig"] == {"maxTokens": 50, "temperature": 0.3, "topP": 0.8}
    (spec,) = body["toolConfig"]["tools"]
    assert spec["toolSpec"]["name"] == "weather"
    assert spec["toolSpec"]["inputSchema"] == {"json": WEATHER.input_schema}


async def test_bedrock_request_has_tool_results_images_and_guardrail(bedrock: Model) -> None:
    """The request is valid for the AWS service model. The guardrail's text ends the response."""
    options = CompanionOptions(tools=(WEATHER,), guardrail="gr1abc", guardrail_version="3")
    bedrock.server.set_responses(bedrock_answer("Not this.", stop="guardrail_intervened"))
    pieces = await pieces_of(
        bedrock.provider, dataclasses.replace(ASK, messages=EXCHANGE, options=options)
    )

    assert pieces == [Delta("Not this."), Finish("refused", 7, 3)]
    assert bedrock.server.faults == []
    ((_, body),) = bedrock.server.calls
    assert body["guardrailConfig"] == {"guardrailIdentifier": "gr1abc", "guardrailVersion": "3"}
    question, _, results = body["messages"]
    assert question["content"][0]["guardContent"]["image"]["format"] == "png"
    assert [each["toolResult"]["status"] for each in results["content"]] == ["success", "error"]


async def test_openai_tool_calls_are_returned_with_their_input(openai: Model) -> None:
    """The arguments arrive in parts, and a response can have several calls."""
    calls = (("call-1", "weather", CALL.input), ("call-2", "weather", ""))
    openai.server.set_responses(openai_tool_calls(*calls, text="Let me look."))
    pieces = await pieces_of(openai.provider, ASK)

    assert pieces == [Delta("Let me look."), CALL, SECOND, Finish("tools", 7, 3)]
    ((_, body),) = openai.server.calls
    assert (body["temperature"], body["top_p"]) == (0.3, 0.8)
    (tool,) = body["tools"]
    assert tool["function"]["parameters"] == WEATHER.input_schema


async def test_openai_request_has_tool_results_and_images(openai: Model) -> None:
    """The request is valid for the types of the OpenAI SDK."""
    openai.server.set_responses(openai_answer("Sunny."))
    pieces = await pieces_of(openai.provider, dataclasses.replace(ASK, messages=EXCHANGE))

    assert pieces[0] == Delta("Sunny.")
    assert openai.server.faults == []
    ((_, body),) = openai.server.calls
    url = body["messages"][1]["content"][0]["image_url"]["url"]
    assert url.startswith("data:image/png;base64,iVBORw0KGgo")
    assert [each["role"] for each in body["messages"]] == [
        "system", "user", "assistant", "tool", "tool",
    ]  # fmt: skip


async def test_bedrock_guardrail_checks_the_messages_that_no_response_has_accepted(
    bedrock: Model,
) -> None:
    """If one of their images cannot be marked, the guardrail checks all messages."""
    messages = (
        ModelMessage("user", "Old.", is_checked=True),
        ModelMessage("assistant", "Yes."),
        ModelMessage("user", "New.", images=(Image("image/jpeg", b"jpeg"),)),
    )
    options = CompanionOptions(guardrail="gr1abc", guardrail_version="3")
    bedrock.server.set_responses(bedrock_answer("Hi."))
    await pieces_of(bedrock.provider, dataclasses.replace(ASK, messages=messages, options=options))
    webp = dataclasses.replace(messages[2], images=(Image("image/webp", b"webp"),))
    await pieces_of(
        bedrock.provider, dataclasses.replace(ASK, messages=(*messages[:2], webp), options=options)
    )

    assert bedrock.server.faults == []
    blocks = [
        [[*block] for message in body["messages"] for block in message["content"]]
        for _, body in bedrock.server.calls
    ]
    assert blocks[0] == [["text"], ["text"], ["guardContent"], ["guardContent"]]
    assert blocks[1] == [["text"], ["text"], ["image"], ["text"]]


@pytest.mark.parametrize("flagged", [True, False])
async def test_openai_moderation_refuses_a_flagged_message(openai: Model, flagged: bool) -> None:
    """The model is called only if the message is not flagged."""
    options = CompanionOptions(moderation_model="omni-moderation-latest")
    openai.server.set_responses(moderation(flagged=flagged))
    openai.server.set_responses(openai_answer("Hello."))
    pieces = await pieces_of(openai.provider, dataclasses.replace(ASK, options=options))

    paths = [path for path, _ in openai.server.calls]
    assert openai.server.calls[0][1] == {
        "model": "omni-moderation-latest",
        "input": "Weather?",
    }
    if flagged:
        assert pieces == [Finish("refused", 0, 0)]
        assert paths == ["/v1/moderations"]
    else:
        assert pieces[0] == Delta("Hello.")
        assert paths == ["/v1/moderations", "/v1/chat/completions"]
