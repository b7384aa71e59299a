"""A sender for tests of group commit: it submits drafts and records the outcome of each."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from chatserver.domain.ids import ChatId, GatewayId, Mid, Ref, UserId
from chatserver.domain.messages import (
    Audience,
    ChatNotLoaded,
    CommitOutcome,
    CommitRefused,
    DuplicateSend,
    InboxCommit,
    LargeChatCommit,
    PendingDraft,
    SenderNotMember,
    UndeliveredCommit,
    parse_ref_record,
)
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

    def __init__(self, hot: HotClient) -> None:
        self.hot = hot
        self.commits = PartitionedCommit(hot, GATEWAY, self._handle_outcome)
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
                chat=audience.chat, sender=sender, ref=Ref(ref), mid=mid, digest="d1", tail=tail,
                request_id=1, is_stored_wanted=False, listener=listener,
            ),
            audience,
        )  # fmt: skip

    def _record(self, outcome: Outcome) -> None:
        assert outcome.ref not in self.outcomes, f"{outcome.ref} got two outcomes"
        self.outcomes[outcome.ref] = outcome
        self.order.append(outcome.ref)
        self.on_outcome(outcome)

    def _handle_outcome(self, draft: PendingDraft, outcome: CommitOutcome) -> None:
        match outcome:
            case InboxCommit():
                self._record_positions(draft, outcome)
                self._record(Outcome("committed", draft.ref, outcome.seq))
            case UndeliveredCommit():
                self._record(Outcome("undelivered", draft.ref, outcome.seq))
            case DuplicateSend():
                self._record(Outcome("known", draft.ref, parse_ref_record(outcome.record)[0]))
            case ChatNotLoaded():
                self._record(Outcome("closed", draft.ref))
            case SenderNotMember():
                self._record(Outcome("not member", draft.ref))
            case CommitRefused():
                self._record(Outcome("failed", draft.ref, error=outcome.error))
            case LargeChatCommit():
                raise AssertionError("no chat is large in these tests")

    def _record_positions(self, draft: PendingDraft, outcome: InboxCommit) -> None:
        users, positions = outcome.users, outcome.positions
        assert len(positions.firsts) == len(users)
        assert len(positions.remote_gateways or positions.firsts) == len(users)
        seqs = [first + positions.offset for first in positions.firsts]
        self.places[draft.ref] = dict(zip(users, seqs, strict=True))

    async def wait_for_outcomes(self, count: int, deadline_s: float = 30) -> list[Outcome]:
        """Wait until `count` drafts have outcomes; return these in order of arrival."""
        await eventually(lambda: len(self.outcomes) == count, deadline_s)
        return [self.outcomes[ref] for ref in self.order]


@contextlib.asynccontextmanager
async def open_sender(url: str, **settings: Any) -> AsyncIterator[Sender]:
    """Open a sender with its own client."""
    async with open_hot(redis_settings(url, **settings)) as hot:
        yield Sender(hot)


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
