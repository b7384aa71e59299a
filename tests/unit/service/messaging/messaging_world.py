"""Fakes for the dependencies of messaging; tests complete each call."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, Ts, UserId
from chatserver.domain.inboxes import AppendResult, Delivery
from chatserver.domain.messages import (
    Audience,
    ChatNotLoaded,
    InboxCommit,
    InboxPositions,
    LargeChatCommit,
    PendingDraft,
    UndeliveredCommit,
)
from chatserver.errors import ChatError
from chatserver.hot.chats.group_commit import OnOutcome
from chatserver.protocol import frames
from chatserver.service.messaging.message_sender import MessageSender
from tests.unit.service.builders import ALICE, BOB, CHAT, EPOCH, audience_of

START_TS = 1_795_000_000_000_000


class Acked(NamedTuple):
    """The outcome of a committed message."""

    ref: str
    seq: int
    mid: str
    dup: bool


class Refused(NamedTuple):
    """The outcome of a refused message."""

    ref: str
    error: ChatError


class Client:
    """Records the outcome of each message."""

    def __init__(self) -> None:
        self.outcomes_received: list[Acked | Refused] = []
        self.caller = RequestCaller()

    def get_caller(self) -> RequestCaller:
        return self.caller

    def on_acked(self, draft: PendingDraft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        self.outcomes_received.append(Acked(draft.ref, seq, mid, dup))

    def on_refused(self, request_id: int, ref: str, error: ChatError) -> None:
        self.outcomes_received.append(Refused(ref, error))

    def errors(self) -> list[str]:
        """Return the codes of all refusals."""
        return [each.error.code for each in self.outcomes_received if isinstance(each, Refused)]


class Commits:
    """Queues drafts in the order of `submit` until the test sets their outcomes."""

    def __init__(self) -> None:
        self.queue: collections.deque[tuple[PendingDraft, Audience]] = collections.deque()
        self.submitted: list[str] = []
        self.full: ChatError | None = None
        self._seqs: dict[ChatId, itertools.count[int]] = {}
        self.report: OnOutcome

    def bind(self, on_outcome: OnOutcome) -> Any:
        """Report the outcomes to `on_outcome`."""
        self.report = on_outcome
        return self

    def submit(self, draft: PendingDraft, audience: Audience) -> None:
        if self.full is not None:
            raise self.full
        self.submitted.append(draft.ref)
        self.queue.append((draft, audience))

    def pop_committed(self) -> tuple[PendingDraft, Audience, Seq, Ts]:
        """Return the next draft with the seq and timestamp of its commit."""
        draft, audience = self.queue.popleft()
        seq = next(self._seqs.setdefault(draft.chat, itertools.count(1)))
        return draft, audience, Seq(seq), Ts(START_TS + seq)

    def commit_all(self, far: bytes | Literal[0] = 0) -> None:
        """Commit all waiting drafts, into the inboxes of all recipients."""
        while self.queue:
            draft, audience, seq, ts = self.pop_committed()
            positions = positions_of(audience, seq, far)
            self.report(draft, InboxCommit(seq, ts, EPOCH, audience.inline_users, positions))

    def publish_all(self, far: bytes | Literal[0] = 0) -> None:
        """Commit all waiting drafts, into the logs of large chats."""
        while self.queue:
            draft, _, seq, ts = self.pop_committed()
            self.report(draft, LargeChatCommit(seq, ts, EPOCH, far))

    def leave_undelivered(self, count: int = 1) -> None:
        """Commit the next drafts without delivering them."""
        for _ in range(count):
            draft, _, seq, ts = self.pop_committed()
            self.report(draft, UndeliveredCommit(seq, ts))

    def close_chat(self, count: int = 1) -> None:
        """Report to the next drafts that their chat is not open."""
        for _ in range(count):
            draft, _ = self.queue.popleft()
            self.report(draft, ChatNotLoaded())


def positions_of(audience: Audience, seq: Seq, far: bytes | Literal[0] = 0) -> InboxPositions:
    """Return position `seq` in each inbox, as reported for the second message of a call."""
    count = len(audience.inline_users)
    return InboxPositions([Seq(seq - 1)] * count, 1, [far] * count if far else None)


class Audiences:
    """Known audiences, and loads that the test completes."""

    def __init__(self) -> None:
        self.known: dict[ChatId, Audience] = {}
        self.loading: dict[ChatId, asyncio.Future[Audience]] = {}
        self.dropped: list[ChatId] = []
        self.is_slow = False
        self.fresh_reads = 0
        self.callers: list[RequestCaller] = []  # the caller of each load

    def find(self, chat: ChatId) -> Audience | None:
        return self.known.get(chat)

    def drop(self, chat: ChatId) -> None:
        self.dropped.append(chat)
        self.known.pop(chat, None)

    async def get(self, chat: ChatId) -> Audience:
        if chat in self.known and not self.is_slow:
            return self.known[chat]
        self.callers.append(CALLER.get())
        if chat not in self.loading:
            self.loading[chat] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self.loading[chat])

    async def get_fresh(self, chat: ChatId) -> Audience:
        self.fresh_reads += 1
        return await self.get(chat)

    async def loaded(self, audience: Audience | ChatError, chat: ChatId = CHAT) -> None:
        """Complete a load."""
        future = self.loading.pop(chat)
        if isinstance(audience, ChatError):
            future.set_exception(audience)
        else:
            self.known[chat] = audience
            future.set_result(audience)
        await run_pending_tasks()


@dataclasses.dataclass
class Inboxes:
    """Delivers each position of a chat once, as the hot tier does."""

    calls: list[list[Delivery]] = dataclasses.field(default_factory=list)
    tops: dict[tuple[UserId, ChatId], int] = dataclasses.field(default_factory=dict)
    heads: collections.Counter[UserId] = dataclasses.field(default_factory=collections.Counter)
    error: ChatError | None = None

    async def deliver(self, deliveries: Sequence[Delivery]) -> list[AppendResult]:
        if self.error is not None:
            raise self.error
        self.calls.append(list(deliveries))
        places = []
        for each in deliveries:
            top = max(self.tops.get((each.user, each.chat), 0), each.after)
            appended = max(0, each.upto - top)
            self.tops[each.user, each.chat] = max(top, each.upto)
            self.heads[each.user] += appended
            places.append(
                AppendResult(each.user, appended, Seq(self.heads[each.user]), (GatewayId("gw2"),))
            )
        return places


@dataclasses.dataclass
class Outcomes:
    """Records finished fan-outs, pushes and notifications in order."""

    finished: list[tuple[ChatId, int]] = dataclasses.field(default_factory=list)
    finished_soon: list[tuple[ChatId, int]] = dataclasses.field(default_factory=list)
    pushed: list[tuple[UserId, int, Any]] = dataclasses.field(default_factory=list)
    notified: list[tuple[UserId, int]] = dataclasses.field(default_factory=list)
    bodies: list[bytes] = dataclasses.field(default_factory=list)
    published: list[tuple[ChatId, int, Any]] = dataclasses.field(default_factory=list)
    channels_notified: list[tuple[ChatId, int]] = dataclasses.field(default_factory=list)

    async def finish(self, done: Sequence[tuple[ChatId, Seq]]) -> None:
        self.finished += done

    def finish_soon(self, chat: ChatId, upto: Seq) -> None:
        self.finished_soon.append((chat, upto))

    def push(
        self, users: Sequence[UserId], epoch: Epoch, places: InboxPositions, body: bytes
    ) -> None:
        assert epoch == EPOCH
        fars = places.remote_gateways if places.remote_gateways is not None else [0] * len(users)
        for user, first, far in zip(users, places.firsts, fars, strict=True):
            self.pushed.append((user, first + places.offset, far))
        self.bodies.append(body)

    def publish(self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, far: Any) -> None:
        assert epoch == EPOCH
        self.published.append((chat, seq, far))
        self.bodies.append(body)

    def notify_channel_seq(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        assert gateways == [GatewayId("gw2")]
        self.channels_notified.append((chat, seq))

    async def list_gateways(self, chat: ChatId) -> list[GatewayId]:
        return [GatewayId("gw2")]

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        assert gateways == (GatewayId("gw2"),)
        self.notified.append((user, seq))


class World:
    """Messaging with its fakes."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.commits, self.audiences, self.inboxes = Commits(), Audiences(), Inboxes()
        self.outcomes, self.client = Outcomes(), Client()
        self.messaging = MessageSender(
            make_commits=self.commits.bind,
            audiences=self.audiences,
            inboxes=self.inboxes,
            undelivered=self.outcomes,
            devices=self.outcomes,
            large_chats=self.outcomes,
        )
        if is_open:
            self.audiences.known[CHAT] = audience_of(ALICE, BOB)

    async def send(self, *refs: str, sender: UserId = ALICE, **fields: Any) -> None:
        """Send messages, one under each ref."""
        for number, ref in enumerate(refs):
            values = {"id": number, "chat": CHAT, "ref": ref, "body": f"text {ref}", **fields}
            self.messaging.submit(sender, frames.Send(**values), self.client)
        await run_pending_tasks()


async def run_pending_tasks() -> None:
    """Let pending tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)
