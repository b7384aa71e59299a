"""What there is of a user's talks with companions, for who copies it or takes it away."""

from __future__ import annotations

from collections.abc import AsyncIterator

from chatserver.domain.companions import CompanionSession
from chatserver.domain.ids import UserId
from chatserver.protocol.frames import Message
from workers.parts import WorkerParts

SESSIONS_PAGE = 100
ENTRIES_PAGE = 100


async def iter_sessions(parts: WorkerParts, user: UserId) -> AsyncIterator[CompanionSession]:
    """Yield all sessions of a user, active ones first."""
    start = None
    while True:
        page = await parts.talks.rows.list_all(user, limit=SESSIONS_PAGE, start=start)
        for session in page.items:
            yield session
        start = page.next
        if start is None:
            return


async def iter_answers(
    parts: WorkerParts, session: CompanionSession
) -> AsyncIterator[list[Message]]:
    """Yield all entries of a session that are the companion's, by page, from every tier.

    What Redis alone has is not there: wait until it is persisted.
    """
    after = 0
    while True:
        entries = await parts.older.list_after(session.chat, after, ENTRIES_PAGE)
        if not entries:
            return
        after = entries[-1].seq
        yield [entry for entry in entries if entry.sender == session.companion]
