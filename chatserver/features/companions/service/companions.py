"""Companion management: create, update, delete, get and list.

Operators manage companions on the command line, or with an API key that has the scope
`companions:write`. Every user may list companions. A version is immutable: an update creates the
next version. An existing session keeps its companion version until the session is updated.
"""

from __future__ import annotations

import dataclasses

import attrs

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.companion_ids import (
    PREFIX,
    CompanionId,
    is_companion,
    is_session_chat,
    parse_companion_id,
)
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.domain.text_validation import parse_name
from chatserver.errors import BadRequest, NotFound, TooLarge
from chatserver.features.companions.companion_options import check_for_provider, check_options
from chatserver.features.companions.model import (
    ANSWER_TOKENS_MAX,
    CONTEXT_TOKENS_MAX,
    CONTEXT_TOKENS_MIN,
    MODEL_CHARS_MAX,
    NAME_CHARS_MAX,
    PROMPT_CHARS_MAX,
    Companion,
    CompanionSession,
    VersionChanges,
)
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.features.companions.warm.sessions import SessionRows
from chatserver.warm.chats.directory import Directory


class Companions:
    """Companion use cases, for administrators and users."""

    def __init__(self, rows: CompanionRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock

    async def create(self, id_: str | None, changes: VersionChanges) -> Companion:
        """Create a companion. If `id_` is None, an id is generated.

        Raises:
            BadRequest, TooLarge: a field is missing or out of bounds.
            Conflict: the id belongs to another companion, which may have been deleted.
        """
        companion = parse_companion_id(f"{PREFIX}{new_id().lower()}" if id_ is None else id_, "id")
        checked = check(changes)
        if checked.name is None or checked.provider is None or checked.model is None:
            raise BadRequest("name, provider, model: are required")
        base = Companion(
            id=companion,
            version=0,
            name="",
            prompt="",
            provider=checked.provider,
            model="",
            context_tokens_max=8_192,
            answer_tokens_max=1_024,
            created_ms=0,
        )
        created = checked.apply(base, get_now_ms(self._clock))
        _check_together(created)
        await self._rows.create(created)
        return created

    async def update(
        self, companion: CompanionId, changes: VersionChanges, before: int | None = None
    ) -> Companion:
        """Create the next version of a companion. `before`, if given, must be the newest version.

        Raises:
            BadRequest, TooLarge: a field is out of bounds, or there is no change.
            NotFound: there is no such companion.
            Conflict: the newest version is not `before`.
        """
        checked = check(changes)
        if checked == VersionChanges():
            raise BadRequest("companion: at least one change is required")
        newest = await self._rows.get_newest(companion)
        _check_together(checked.apply(newest, 0))
        return await self._rows.update(companion, checked, get_now_ms(self._clock), before)

    async def delete(self, companion: CompanionId) -> None:
        """Delete a companion: no new sessions can start. Idempotent. Raises NotFound.

        Existing messages remain. In active sessions, the response is "This companion no longer
        exists."
        """
        await self._rows.delete(companion, get_now_ms(self._clock))

    async def get(self, companion: CompanionId, version: int | None = None) -> Companion:
        """Return the given version of a companion, even if the companion has been deleted.

        Without `version`, return the newest version.

        Raises:
            NotFound: there is no such companion or version; or `version` is None, and the companion
                has been deleted.
        """
        if version is None:
            return await self._rows.get_newest(companion)
        return await self._rows.get_companion(companion, version)

    async def list_page(
        self, after: CompanionId | None, limit: int
    ) -> tuple[list[Companion], CompanionId | None]:
        """Return a page of companions, sorted by id, and the next page's `after`."""
        return await self._rows.list_page(limit=limit, after=after)


@attrs.define(eq=False, repr=False)
class CompanionCatalog:
    """Finds companions by version, and sessions by chat."""

    _rows: CompanionRows
    _sessions: SessionRows
    _members: Directory
    _clock: Clock

    async def find_persona(self, session: CompanionSession) -> Companion | None:
        """Return the version that responds in a session; None if the companion has been deleted.

        Strongly consistent.
        """
        try:
            persona = await self._rows.get_companion(session.companion, session.ai_version)
        except NotFound:
            return None
        return None if persona.is_deleted else persona

    async def find_session_by_chat(self, chat: ChatId) -> CompanionSession | None:
        """Return the session of a chat, active or ended; None if the chat is not a session.

        Guarantees:
            Strongly consistent: it finds a session that the index does not contain yet.
            Cost: none for other kinds of chats; otherwise a Query and a GetItem, rarely twice that.
        """
        if not is_session_chat(chat):
            return None
        session = await self._sessions.find_by_chat(chat)
        if session is not None:
            return session
        try:
            members = [member.user for member in await self._members.list_members(chat)]
        except NotFound:
            return None
        companions = [member for member in members if is_companion(member)]
        users = [member for member in members if not is_companion(member)]
        if not companions or not users:
            return None
        companion = CompanionId(UserId(companions[0]))
        return await self._sessions.find(UserId(users[0]), companion, chat)

    async def create_missing_chat(self, chat: ChatId) -> bool:
        """Create the missing chat of a session; return False if no session has this chat id."""
        session = await self.find_session_by_chat(chat)
        if session is None:
            return False
        persona = await self._rows.get_companion(session.companion, session.ai_version)
        await self._members.create_session_chat(
            chat, session.user, session.companion, persona.name, self._clock.time()
        )
        return True


def check(changes: VersionChanges) -> VersionChanges:
    """Validate the fields of a new companion version; return them with normalized text.

    Raises:
        BadRequest, TooLarge: a field is out of bounds.
    """
    for field, text, chars_max in (
        ("name", changes.name, NAME_CHARS_MAX),
        ("prompt", changes.prompt, PROMPT_CHARS_MAX),
        ("model", changes.model, MODEL_CHARS_MAX),
    ):
        if text is not None and len(text) > chars_max:
            raise TooLarge(f"{field}: must be at most {chars_max} characters")
    if changes.model is not None and not (changes.model.isascii() and changes.model.isprintable()):
        raise BadRequest("model: must be printable ASCII")
    if changes.model == "":
        raise BadRequest("model: must not be empty")
    _check_tokens("context_tokens_max", changes.context_tokens_max, CONTEXT_TOKENS_MIN)
    _check_tokens("answer_tokens_max", changes.answer_tokens_max, 1, ANSWER_TOKENS_MAX)
    return dataclasses.replace(
        changes,
        name=None if changes.name is None else parse_name(changes.name),
        prompt=None if changes.prompt is None else changes.prompt.strip(),
        options=None if changes.options is None else check_options(changes.options),
    )


def _check_tokens(
    field: str, tokens: int | None, minimum: int, most: int = CONTEXT_TOKENS_MAX
) -> None:
    if tokens is not None and not minimum <= tokens <= most:
        raise BadRequest(f"{field}: must be {minimum} to {most}")


def _check_together(companion: Companion) -> None:
    """Check fields whose valid values depend on other fields. Raises BadRequest."""
    check_for_provider(companion.options, companion.provider)
    if companion.answer_tokens_max >= companion.context_tokens_max:
        raise BadRequest("answer_tokens_max: must be less than context_tokens_max")
