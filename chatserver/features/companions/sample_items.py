"""Example items of companions and sessions, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.features.companions.model import Companion, CompanionSession, SessionSummary
from chatserver.features.companions.user_memory import FINISHED, Entry, Source, UserMemory
from chatserver.features.companions.warm.companions import VERSION, encode_head
from chatserver.features.companions.warm.sessions import encode_session
from chatserver.features.companions.warm.summaries import SUMMARY
from chatserver.features.companions.warm.user_memories import encode_memory
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import CHAT_SESSION, DIRECTORY, TableSchema

_MS: Final = 1_795_000_000_000
_ADA: Final = Companion(
    id=CompanionId(UserId("ai-ada")),
    version=1,
    name="Ada",
    prompt="Be kind.",
    provider="scripted",
    model="echo",
    context_tokens_max=8192,
    answer_tokens_max=1024,
    created_ms=_MS,
)


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return an example of each kind of companion item in `table`."""
    user, old, active = UserId("alice"), "01KAJ4Q7R8M2E5S9T0B3C6D8FH", "01KAJ5W3N0TBJ8QW6X1V7ZC2YD"
    if table is DIRECTORY:
        summary = SessionSummary(Seq(1), Seq(2), "Alice asked for the tide.", 1)
        return [encode_head(_ADA), VERSION.encode(_ADA), SUMMARY.encode(summary, chat=active)]
    if table is not CHAT_SESSION:
        return []
    later = _MS + 86_400_000
    return [
        encode_session(CompanionSession(user, _ADA.id, ChatId(active), 1, later)),
        encode_session(
            CompanionSession(
                user=user,
                companion=_ADA.id,
                chat=ChatId(old),
                ai_version=1,
                create_time=_MS,
                delete_time=later,
            )
        ),
        encode_memory(_make_memory(user, ChatId(old), later)),
    ]


def _make_memory(user: UserId, chat: ChatId, now_ms: int) -> UserMemory:
    year_ms = 365 * 86_400_000
    text, source = "The user's name is Lin.", Source(chat, 1, 4)
    entry = Entry(
        id="6f1d2c3b4a596877",
        kind="fact",
        text=text,
        sources=(source,),
        created=now_ms,
        updated=now_ms,
        expires=now_ms + year_ms,
    )
    return UserMemory(user, _ADA.id, (entry,), {chat: FINISHED}, rev=1)
