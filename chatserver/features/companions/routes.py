"""HTTP routes for AI companions and their sessions with users."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from chatserver.api.authorization import key, user_or_key
from chatserver.api.paging import Page, PageOf
from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import ID_PATTERN as COMPANION_PATTERN
from chatserver.domain.companion_ids import (
    VERSIONS_MAX,
    CompanionId,
    parse_companion_id,
)
from chatserver.domain.ids import UserId
from chatserver.features.companions.companion_options import NO_OPTIONS, CompanionOptions
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.frames import CompanionInfo, describe_companion
from chatserver.features.companions.model import (
    ANSWER_TOKENS_MAX,
    CONTEXT_TOKENS_MAX,
    CONTEXT_TOKENS_MIN,
    MODEL_CHARS_MAX,
    NAME_CHARS_MAX,
    PROMPT_CHARS_MAX,
    Companion,
    Provider,
    VersionChanges,
)

SEE = user_or_key("companions:read")
READ, WRITE = key("companions:read"), key("companions:write")

PathCompanion = Annotated[str, PathParameter(pattern=COMPANION_PATTERN)]
PathVersion = Annotated[int, PathParameter(ge=1, le=VERSIONS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Prompt = Annotated[str, Meta(max_length=PROMPT_CHARS_MAX)]
Model = Annotated[str, Meta(min_length=1, max_length=MODEL_CHARS_MAX)]
ContextTokens = Annotated[int, Meta(ge=CONTEXT_TOKENS_MIN, le=CONTEXT_TOKENS_MAX)]
AnswerTokens = Annotated[int, Meta(ge=1, le=ANSWER_TOKENS_MAX)]


class NewCompanion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new companion. If `id` is omitted, the server generates one."""

    name: Name
    provider: Provider
    model: Model
    prompt: Prompt = ""
    id: Annotated[str, Meta(pattern=COMPANION_PATTERN)] | None = None
    context_tokens_max: ContextTokens = 8_192
    answer_tokens_max: AnswerTokens = 1_024
    options: CompanionOptions = NO_OPTIONS


class CompanionChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields to change in the next version. `options` replaces all options.

    With `version`, the change is rejected if `version` is not the newest version.
    """

    name: Name | None = None
    provider: Provider | None = None
    model: Model | None = None
    prompt: Prompt | None = None
    context_tokens_max: ContextTokens | None = None
    answer_tokens_max: AnswerTokens | None = None
    options: CompanionOptions | None = None
    version: Annotated[int, Meta(ge=1, le=VERSIONS_MAX)] | None = None


class Persona(msgspec.Struct, frozen=True):
    """A version of a companion, for administrators. `created` is in milliseconds since 1970."""

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
    options: CompanionOptions


def build_companions_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [*_build_public_routes(container), *_build_admin_routes(container)]


def _build_public_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    companions = container.get(CompanionContainer).companions

    @get("/v1/companions", opt={"rule": SEE})
    async def list_companions(page: PageOf) -> Page[CompanionInfo]:
        """List companions, sorted by id."""
        position = page.open(str)
        after = None if position is None else CompanionId(UserId(position))
        found, last = await companions.list_page(after, page.limit)
        return page.build(map(describe_companion, found), last)

    @get("/v1/companions/{companion:str}", opt={"rule": SEE})
    async def get_companion(companion: PathCompanion) -> CompanionInfo:
        """Get a companion's public fields."""
        return describe_companion(await companions.get(parse_companion_id(companion)))

    return [list_companions, get_companion]


def _build_admin_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    companions = container.get(CompanionContainer).companions

    @post("/v1/companions", opt={"rule": WRITE, "creates": True})
    async def create_companion(data: JSONBody[NewCompanion]) -> Persona:
        """Create a companion."""
        wanted = VersionChanges(
            name=data.name,
            prompt=data.prompt,
            provider=data.provider,
            model=data.model,
            context_tokens_max=data.context_tokens_max,
            answer_tokens_max=data.answer_tokens_max,
            options=data.options,
        )
        return _show(await companions.create(data.id, wanted))

    @get("/v1/companions/{companion:str}/versions/{version:int}", opt={"rule": READ})
    async def get_companion_version(companion: PathCompanion, version: PathVersion) -> Persona:
        """Get all fields of a companion version, even if the companion has been deleted."""
        return _show(await companions.get(parse_companion_id(companion), version))

    @patch("/v1/companions/{companion:str}", opt={"rule": WRITE, "creates": True})
    async def update_companion(
        companion: PathCompanion, data: JSONBody[CompanionChanges]
    ) -> Persona:
        """Create the next version of a companion; earlier versions do not change."""
        wanted = VersionChanges(
            name=data.name,
            prompt=data.prompt,
            provider=data.provider,
            model=data.model,
            context_tokens_max=data.context_tokens_max,
            answer_tokens_max=data.answer_tokens_max,
            options=data.options,
        )
        return _show(await companions.update(parse_companion_id(companion), wanted, data.version))

    @delete("/v1/companions/{companion:str}", opt={"rule": WRITE, "errors": (409,)})
    async def delete_companion(companion: PathCompanion) -> None:
        """Delete a companion: no new sessions can start; existing messages remain."""
        await companions.delete(parse_companion_id(companion))

    return [create_companion, get_companion_version, update_companion, delete_companion]


def _show(companion: Companion) -> Persona:
    return Persona(
        id=companion.id,
        version=companion.version,
        name=companion.name,
        prompt=companion.prompt,
        provider=companion.provider,
        model=companion.model,
        context_tokens_max=companion.context_tokens_max,
        answer_tokens_max=companion.answer_tokens_max,
        created=companion.created_ms,
        deleted=companion.is_deleted,
        options=companion.options,
    )
