"""CompanionOptions of companions: each error names the field and the limit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chatserver.errors import ChatError
from chatserver.features.companions.companion_options import (
    SCHEMA_BYTES_MAX,
    TOOLS_MAX,
    CompanionOptions,
    check_for_provider,
    check_options,
    encode_options,
    parse_options,
)

TOOL: dict[str, Any] = {
    "name": "weather",
    "description": "Weather of a city",
    "url": "https://host.example/weather",
    "input_schema": {"type": "object"},
}
GUARDRAIL = {"guardrail": "gr1abc", "guardrail_version": "1"}


def parse(fields: dict[str, Any]) -> CompanionOptions:
    return check_options(parse_options(msgspec.json.encode(fields)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 2.1}, "<= 2.0 - at `$.temperature`"),
        ({"top_p": 0}, "> 0.0 - at `$.top_p`"),
        ({"images_max": 21}, "<= 20 - at `$.images_max`"),
        ({"tool": []}, "unknown field `tool`"),
        ({"guardrail": "gr1abc"}, "options.guardrail_version: must be DRAFT or a number"),
        ({"guardrail": "a b", "guardrail_version": "1"}, "options.guardrail: must be the id"),
        ({"guardrail_version": "1"}, "options.guardrail_version: requires options.guardrail"),
        ({"tools": [TOOL] * (TOOLS_MAX + 1)}, f"<= {TOOLS_MAX} - at `$.tools`"),
        ({"tools": [TOOL, TOOL]}, "options.tools[1].name: weather is used twice"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "at `$.tools[0].name`"),
        ({"tools": [{**TOOL, "url": "ftp://x/"}]}, "options.tools[0].url: a URL must begin with"),
        (
            {"tools": [{**TOOL, "input_schema": {"type": "array"}}]},
            "options.tools[0].input_schema: must be a JSON Schema with type object",
        ),
        (
            {"tools": [{**TOOL, "input_schema": {"type": "object", "x": "y" * SCHEMA_BYTES_MAX}}]},
            f"options.tools[0].input_schema: must be at most {SCHEMA_BYTES_MAX} bytes",
        ),
    ],
)
def test_invalid_options_are_refused(fields: dict[str, Any], message: str) -> None:
    """The message has the field and the limit."""
    with pytest.raises(ChatError) as error:
        parse(fields)

    assert message in error.value.message


@pytest.mark.parametrize(
    ("fields", "provider", "message"),
    [
        (GUARDRAIL, "openai", "options.guardrail: requires provider bedrock"),
        (
            {"moderation_model": "m"},
            "bedrock",
            "options.moderation_model: requires provider openai",
        ),
        ({"temperature": 1.5}, "bedrock", "options.temperature: must be 0 to 1"),
    ],
)
def test_options_of_another_provider_are_refused(
    fields: dict[str, Any], provider: str, message: str
) -> None:
    """An option that would be ignored is an error."""
    with pytest.raises(ChatError) as error:
        check_for_provider(parse(fields), provider)

    assert message in error.value.message


def test_stored_options_round_trip() -> None:
    """CompanionOptions are stored as JSON, without the defaults."""
    options = parse({**GUARDRAIL, "tools": [TOOL], "memory": False, "top_p": 0.5})

    assert parse_options(encode_options(options)) == options
    assert encode_options(CompanionOptions()) == "{}"
