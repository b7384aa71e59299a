"""A sender for tests of group commit: it submits drafts and records the outcome of each."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Mid, Ref, Seq, Ts, UserId
from chatserver.domain.messages import Audience, InboxPositions, PendingDraft, parse_place
from chatserver.errors import ChatError
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.chats.persist_backlog import Backlog, CommitEntry
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.protocol import codec
from tests.integration.hot.support import ALICE, redis_settings
from tests.support.servers.processes import eventually

GATEWAY = GatewayId("gw1")
OTHER = ChatId("c2")


class Outcome(NamedTuple):
    """The outcome of a draft."""

    kind: str
    ref: str
    seq: int = 0
    error: ChatError | None = None


class Sender:
    """Submits drafts and records one outcome for each."""

    def __init__(self, hot: HotClient, commits: PartitionedCommit) -> None:
        self.hot = hot
        self.commits = commits
        self.outcomes: dict[str, Outcome] = {}
        self.order: list[str] = []
        self.places: dict[str, dict[UserId, int]] = {}
        self._mids = itertools.count(1)
        self.on_outcome: Callable[[Outcome], object] = lambda _: None

    def send(self, ref: str, audience: Audience, sender: UserId = ALICE) -> None:
        """Submit a draft."""
        mid = Mid(f"M{next(self._mids)}")
        tail = codec.encode_message_tail(audience.chat, mid, sender, ref, "text", "hi", None)
        listener: Any = self
        self.commits.submit(
            PendingDraft(
                audience.chat, sender, Ref(ref), mid, "d1", tail, 1, False, listener, listener
            ),
            audience,
        )

    def _record(self, outcome: Outcome) -> None:
        assert outcome.ref not in self.outcomes, f"{outcome.ref} got two outcomes"
        self.outcomes[outcome.ref] = outcome
        self.order.append(outcome.ref)
        self.on_outcome(outcome)

    def on_committed(
        self,
        draft: PendingDraft,
        seq: Seq,
        ts: Ts,
        epoch: Epoch,
        audience: Audience,
        places: InboxPositions,
    ) -> None:
        count = len(audience.inline_users)
        assert len(places.firsts) == len(places.remote_gateways or places.firsts) == count
        seqs = [first + places.offset for first in places.firsts]
        self.places[draft.ref] = dict(zip(audience.inline_users, seqs, strict=True))
        self._record(Outcome("committed", draft.ref, seq))

    def on_undelivered(self, draft: PendingDraft, seq: Seq, ts: Ts) -> None:
        self._record(Outcome("undelivered", draft.ref, seq))

    def on_duplicate(self, draft: PendingDraft, place: bytes) -> None:
        self._record(Outcome("known", draft.ref, parse_place(place)[0]))

    def on_chat_closed(self, draft: PendingDraft) -> None:
        self._record(Outcome("closed", draft.ref))

    def on_not_member(self, draft: PendingDraft) -> None:
        self._record(Outcome("not member", draft.ref))

    def on_failed(self, draft: PendingDraft, error: ChatError) -> None:
        self._record(Outcome("failed", draft.ref, error=error))

    async def wait_for_outcomes(self, count: int, deadline_s: float = 30) -> list[Outcome]:
        """Wait until `count` drafts have outcomes; return these in order of arrival."""
        await eventually(lambda: len(self.outcomes) == count, deadline_s)
        return [self.outcomes[ref] for ref in self.order]


@contextlib.asynccontextmanager
async def open_sender(url: str, **settings: Any) -> AsyncIterator[Sender]:
    """Open a sender with its own client."""
    async with open_hot(redis_settings(url, **settings)) as hot:
        yield Sender(hot, PartitionedCommit(hot, GATEWAY))


async def open_chat(hot: HotClient, chat: ChatId, *users: UserId) -> Audience:
    """Open a chat and return its audience."""
    members = dict.fromkeys(users, ("member", 0))
    await HotChatWriter(hot).open_chat(chat, "group", None, 1, members, (0, 0), [])

    async def never(_: ChatId) -> None:
        raise AssertionError("the chat is open")

    return await Audiences(hot, never).get(chat)


async def backlog_of(hot: HotClient) -> list[CommitEntry]:
    """Return the backlog entries of all commit calls."""
    entries = await Backlog(hot, 0).list_after("0-0", 100_000)
    return [entry for entry in entries if isinstance(entry, CommitEntry)]
