"""HTTP routes for users to manage what companions remember about them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import delete, get, patch
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, PathParameter, QueryParameter

from chatserver.api.authorization import Actor, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import parse_companion_id
from chatserver.domain.ids import ID_PATTERN, ChatId
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.routes import PathCompanion
from chatserver.features.companions.user_memory import UserMemory

READ, WRITE = user_or_key("chats:read"), user_or_key("chats:write")
ChatQuery = Annotated[str | None, QueryParameter(pattern=ID_PATTERN, required=False)]
PathEntry = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{16}(?![\s\S])")]


class MemoryEntry(msgspec.Struct, frozen=True):
    """Something that a companion remembers, and the session chats that it comes from.

    Times are in milliseconds since 1970.
    """

    id: str
    kind: Literal["fact", "summary"]
    text: str
    chats: list[str]
    created: int
    updated: int
    expires: int


class Memory(msgspec.Struct, frozen=True):
    """A companion's memories of the user, newest first."""

    companion: str
    enabled: bool
    entries: list[MemoryEntry]


class MemorySwitch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`enabled`: whether the companion remembers the user across sessions."""

    enabled: bool


def build_companion_memory_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    memories = container.get(CompanionContainer).memories

    def show(memory: UserMemory) -> Memory:
        entries = [
            MemoryEntry(
                id=entry.id,
                kind=entry.kind,
                text=entry.text,
                chats=sorted(source.chat for source in entry.sources),
                created=entry.created,
                updated=entry.updated,
                expires=entry.expires,
            )
            for entry in memories.list_current(memory)
        ]
        return Memory(memory.companion, memory.is_on, entries)

    @get("/v1/me/companions/{companion:str}/memory", opt={"rule": READ})
    async def get_companion_memory(companion: PathCompanion, actor: Actor) -> Memory:
        """Get what a companion remembers about you across sessions."""
        return show(await memories.get(actor, parse_companion_id(companion)))

    @patch("/v1/me/companions/{companion:str}/memory", opt={"rule": WRITE, "errors": (409,)})
    async def switch_companion_memory(
        companion: PathCompanion, data: JSONBody[MemorySwitch], actor: Actor
    ) -> Memory:
        """Turn a companion's memory of you on or off.

        While it is off, entries are kept, but the companion neither uses nor changes them.
        """
        companion_id = parse_companion_id(companion)
        return show(await memories.set_enabled(actor, companion_id, is_on=data.enabled))

    @delete(
        "/v1/me/companions/{companion:str}/memory",
        status_code=204,
        opt={"rule": WRITE, "errors": (409,)},
    )
    async def delete_companion_memory(
        companion: PathCompanion, actor: Actor, chat: ChatQuery = None
    ) -> None:
        """Delete what a companion remembers about you; with `chat`, only that session's entries."""
        companion_id = parse_companion_id(companion)
        if chat is None:
            await memories.delete_all(actor, companion_id)
        else:
            await memories.delete_session(actor, companion_id, ChatId(chat))

    @delete(
        "/v1/me/companions/{companion:str}/memory/{entry:str}",
        status_code=204,
        opt={"rule": WRITE, "errors": (409,)},
    )
    async def delete_companion_memory_entry(
        companion: PathCompanion, entry: PathEntry, actor: Actor
    ) -> None:
        """Delete one entry of a companion's memory."""
        await memories.delete_entry(actor, parse_companion_id(companion), entry)

    return [
        get_companion_memory,
        switch_companion_memory,
        delete_companion_memory,
        delete_companion_memory_entry,
    ]
