"""HTTP routes of AI companions: users and API keys list them, API keys manage them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from chatserver.api.container import ApiContainer
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.security import key, user_or_key
from chatserver.domain.companion_ids import (
    ID_PATTERN,
    VERSIONS_MAX,
    CompanionId,
    parse_companion_id,
)
from chatserver.domain.ids import UserId
from chatserver.features.companions.model import (
    ANSWER_TOKENS_MAX,
    CONTEXT_TOKENS_MAX,
    CONTEXT_TOKENS_MIN,
    MODEL_CHARS_MAX,
    NAME_CHARS_MAX,
    PROMPT_CHARS_MAX,
    Changes,
    Companion,
    Provider,
)
from chatserver.features.companions.views import describe_companion
from chatserver.protocol import frames

SEE = user_or_key("companions:read")
READ, WRITE = key("companions:read"), key("companions:write")

PathCompanion = Annotated[str, PathParameter(pattern=ID_PATTERN)]
PathVersion = Annotated[int, PathParameter(ge=1, le=VERSIONS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Prompt = Annotated[str, Meta(max_length=PROMPT_CHARS_MAX)]
Model = Annotated[str, Meta(min_length=1, max_length=MODEL_CHARS_MAX)]
ContextTokens = Annotated[int, Meta(ge=CONTEXT_TOKENS_MIN, le=CONTEXT_TOKENS_MAX)]
AnswerTokens = Annotated[int, Meta(ge=1, le=ANSWER_TOKENS_MAX)]


class NewCompanion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion at its first version; an omitted `id` is generated."""

    name: Name
    provider: Provider
    model: Model
    prompt: Prompt = ""
    id: Annotated[str, Meta(pattern=ID_PATTERN)] | None = None
    context_tokens_max: ContextTokens = 8_192
    answer_tokens_max: AnswerTokens = 1_024


class CompanionChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields to change in the next version; `version` must be the newest one if given."""

    name: Name | None = None
    provider: Provider | None = None
    model: Model | None = None
    prompt: Prompt | None = None
    context_tokens_max: ContextTokens | None = None
    answer_tokens_max: AnswerTokens | None = None
    version: Annotated[int, Meta(ge=1, le=VERSIONS_MAX)] | None = None


class Persona(msgspec.Struct, frozen=True):
    """A version of a companion, for administrators. `created` in milliseconds since 1970."""

    id: str
    version: int
    name: str
    prompt: str
    provider: Provider
    model: str
    context_tokens_max: int
    answer_tokens_max: int
    created: int
    deleted: bool


def companions_routes(parts: ApiContainer) -> list[HTTPRouteHandler]:
    """Return the routes of companions."""
    return [*_seen_by_all(parts), *_managed(parts)]


def _seen_by_all(parts: ApiContainer) -> list[HTTPRouteHandler]:
    companions = parts.companions

    @get("/v1/companions", opt={"rule": SEE})
    async def list_companions(
        limit: Limit = 50, cursor: Cursor = None
    ) -> Page[frames.CompanionInfo]:
        """List companions by id."""
        place = parts.cursors.open("companions", cursor, str)
        after = None if place is None else CompanionId(UserId(place))
        found, following = await companions.list_page(after, limit)
        sealed = None if following is None else parts.cursors.seal("companions", following)
        return Page([describe_companion(each) for each in found], sealed)

    @get("/v1/companions/{companion:str}", opt={"rule": SEE})
    async def get_companion(companion: PathCompanion) -> frames.CompanionInfo:
        """Get a companion's public fields."""
        return describe_companion(await companions.get(parse_companion_id(companion)))

    return [list_companions, get_companion]


def _managed(parts: ApiContainer) -> list[HTTPRouteHandler]:
    companions = parts.companions

    @post("/v1/companions", opt={"rule": WRITE, "creates": True})
    async def create_companion(data: JSONBody[NewCompanion]) -> Persona:
        """Create a companion."""
        wanted = Changes(
            data.name,
            data.prompt,
            data.provider,
            data.model,
            data.context_tokens_max,
            data.answer_tokens_max,
        )
        return _show(await companions.create(data.id, wanted))

    @get("/v1/companions/{companion:str}/versions/{version:int}", opt={"rule": READ})
    async def get_companion_version(companion: PathCompanion, version: PathVersion) -> Persona:
        """Get all fields of a companion version, deleted or not."""
        return _show(await companions.get(parse_companion_id(companion), version))

    @patch("/v1/companions/{companion:str}", opt={"rule": WRITE, "creates": True})
    async def update_companion(
        companion: PathCompanion, data: JSONBody[CompanionChanges]
    ) -> Persona:
        """Create the next version of a companion; earlier versions do not change."""
        wanted = Changes(
            data.name,
            data.prompt,
            data.provider,
            data.model,
            data.context_tokens_max,
            data.answer_tokens_max,
        )
        return _show(await companions.update(parse_companion_id(companion), wanted, data.version))

    @delete("/v1/companions/{companion:str}", opt={"rule": WRITE})
    async def delete_companion(companion: PathCompanion) -> None:
        """Delete a companion: no new sessions can start; existing messages remain."""
        await companions.delete(parse_companion_id(companion))

    return [create_companion, get_companion_version, update_companion, delete_companion]


def _show(companion: Companion) -> Persona:
    return Persona(
        companion.id,
        companion.version,
        companion.name,
        companion.prompt,
        companion.provider,
        companion.model,
        companion.context_tokens_max,
        companion.answer_tokens_max,
        companion.created_ms,
        companion.is_deleted,
    )
