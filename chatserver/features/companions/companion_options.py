"""A companion version's options: sampling, guardrails, images, tools and memory. No I/O.

The options are one JSON object, which an update replaces as a whole.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from chatserver.errors import BadRequest, ChatError, TooLarge
from chatserver.outbound.allowed_destinations import URL_CHARS_MAX, parse_url

TOOLS_MAX: Final = 16
TOOL_DESCRIPTION_CHARS_MAX: Final = 1_000
SCHEMA_BYTES_MAX: Final = 8_192
OPTIONS_BYTES_MAX: Final = 65_536
IMAGES_MAX: Final = 20  # maximum images per message in the Converse API
TEMPERATURE_MAX: Final = 2.0
# In tool names, the Converse API and OpenAI accept up to 64 letters, digits, `_` and `-`.
TOOL_NAME_PATTERN: Final = r"^[a-zA-Z0-9_-]{1,64}(?![\s\S])"
# Formats of GuardrailIdentifier (an id or an ARN) and GuardrailVersion in the Bedrock API.
_GUARDRAIL = re.compile(
    r"[a-z0-9]+|arn:aws(-[^:]+)?:bedrock:[a-z0-9-]{1,20}:[0-9]{12}[:]guardrail/[a-z0-9]+"
)
_GUARDRAIL_VERSION = re.compile(r"[1-9][0-9]{0,7}|DRAFT")


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function of the host application that the model may call.

    `input_schema` is a JSON Schema of type `object`. A call is a signed POST to `url`.
    """

    name: Annotated[str, Meta(pattern=TOOL_NAME_PATTERN)]
    description: Annotated[str, Meta(min_length=1, max_length=TOOL_DESCRIPTION_CHARS_MAX)]
    url: Annotated[str, Meta(min_length=1, max_length=URL_CHARS_MAX)]
    input_schema: dict[str, Any]


class CompanionOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of a companion version.

    `memory`: the companion remembers facts about a user across sessions. `guardrail` and
    `guardrail_version` require provider `bedrock`, `moderation_model` requires `openai`.
    `images_max`: maximum images per model request; 0 if the model accepts no images.
    """

    memory: bool = True
    temperature: Annotated[float, Meta(ge=0, le=TEMPERATURE_MAX)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    guardrail: Annotated[str, Meta(min_length=1, max_length=2048)] | None = None
    guardrail_version: Annotated[str, Meta(min_length=1, max_length=8)] | None = None
    moderation_model: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    images_max: Annotated[int, Meta(ge=0, le=IMAGES_MAX)] = 0
    tools: Annotated[tuple[Tool, ...], Meta(max_length=TOOLS_MAX)] = ()


NO_OPTIONS: Final = CompanionOptions()


def get_safety_options(options: CompanionOptions) -> CompanionOptions:
    """Return only the guardrail and the moderation model, which apply to every model request."""
    return CompanionOptions(
        guardrail=options.guardrail,
        guardrail_version=options.guardrail_version,
        moderation_model=options.moderation_model,
    )


def parse_options(text: str | bytes) -> CompanionOptions:
    """Parse options from JSON. Raises BadRequest."""
    try:
        return msgspec.json.decode(text, type=CompanionOptions)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise BadRequest(f"options: {exc}") from exc


def encode_options(options: CompanionOptions) -> str:
    return msgspec.json.encode(options).decode()


def check_options(options: CompanionOptions) -> CompanionOptions:
    """Validate options and return them.

    Raises:
        BadRequest, TooLarge: a field is invalid; the error names the field and its limit.
    """
    if len(encode_options(options).encode()) > OPTIONS_BYTES_MAX:
        raise TooLarge(f"options: must be at most {OPTIONS_BYTES_MAX} bytes of JSON")
    checked = parse_options(encode_options(options))
    if checked.guardrail is not None:
        _check_guardrail(checked.guardrail, checked.guardrail_version)
    elif checked.guardrail_version is not None:
        raise BadRequest("options.guardrail_version: requires options.guardrail")
    names = [tool.name for tool in checked.tools]
    for number, tool in enumerate(checked.tools):
        _check_tool(f"options.tools[{number}]", tool, names[:number])
    return checked


def check_for_provider(options: CompanionOptions, provider: str) -> None:
    """Check that the provider supports the options. Raises BadRequest."""
    if options.guardrail is not None and provider != "bedrock":
        raise BadRequest("options.guardrail: requires provider bedrock")
    if options.moderation_model is not None and provider != "openai":
        raise BadRequest("options.moderation_model: requires provider openai")
    if provider == "bedrock" and (options.temperature or 0) > 1:
        raise BadRequest("options.temperature: must be 0 to 1 for provider bedrock")


def _check_guardrail(guardrail: str, version: str | None) -> None:
    if _GUARDRAIL.fullmatch(guardrail) is None:
        raise BadRequest("options.guardrail: must be the id or the ARN of a Bedrock guardrail")
    if version is None or _GUARDRAIL_VERSION.fullmatch(version) is None:
        raise BadRequest("options.guardrail_version: must be DRAFT or a number of 1 to 8 digits")


def _check_tool(field: str, tool: Tool, before: list[str]) -> None:
    if tool.name in before:
        raise BadRequest(f"{field}.name: {tool.name} is used twice")
    if tool.input_schema.get("type") != "object":
        raise BadRequest(f"{field}.input_schema: must be a JSON Schema with type object")
    if len(msgspec.json.encode(tool.input_schema)) > SCHEMA_BYTES_MAX:
        raise TooLarge(f"{field}.input_schema: must be at most {SCHEMA_BYTES_MAX} bytes of JSON")
    try:
        parse_url(tool.url)
    except ChatError as exc:
        raise BadRequest(f"{field}.url: {exc.message}") from exc
