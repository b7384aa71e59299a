"""A user's companion sessions and responses, for data export and erasure."""

from __future__ import annotations

from collections.abc import AsyncIterator

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.model import CompanionSession
from chatserver.protocol.frames import Message

SESSIONS_PAGE = 100
ENTRIES_PAGE = 100


async def iter_sessions(
    container: StorageContainer, user: UserId
) -> AsyncIterator[CompanionSession]:
    """Yield all of a user's sessions, active ones first."""
    start = None
    while True:
        page = await container.get(CompanionContainer).session_rows.list_all(
            user, limit=SESSIONS_PAGE, start=start
        )
        for session in page.items:
            yield session
        start = page.next
        if start is None:
            return


async def iter_responses(
    container: StorageContainer, session: CompanionSession
) -> AsyncIterator[list[Message]]:
    """Yield the entries that the companion has written in a session, in pages.

    Reads DynamoDB and S3, so call this when all entries have been persisted.
    """
    after = 0
    while True:
        entries = await container.older_tiers.list_after(session.chat, after, ENTRIES_PAGE)
        if not entries:
            return
        after = entries[-1].seq
        yield [entry for entry in entries if entry.sender == session.companion]
