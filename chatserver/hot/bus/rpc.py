"""Remote procedure calls from gateways to warm-tier workers, through Redis.

A gateway neither loads the AWS client nor blocks its event loop on it (a query costs 2 ms of CPU):
`workers.rpc` makes the call and sends the result to the gateway's mailbox. Data: ``{rpc}:calls``
(stream, bounded), read by one consumer group of all `rpc` workers. A worker receives each call at
most once. The caller has a deadline and may retry, so every operation is idempotent.

Deadlines: a call carries a time budget, not an absolute deadline, because the clocks of two
machines differ. The age of a call is the Redis time minus the time in its entry id, which also
comes from Redis.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import redis.exceptions
import structlog

from chatserver.domain.access.caller import CALLER
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId, Ref, UserId, new_id
from chatserver.domain.membership_periods import Periods
from chatserver.errors import (
    BadRequest,
    ChatError,
    Conflict,
    CorruptData,
    Forbidden,
    NotFound,
    Overloaded,
    RateLimited,
    TooLarge,
    Unavailable,
)
from chatserver.features.attachments.hot import decode_file
from chatserver.features.attachments.model import File
from chatserver.hot.bus.mailbox import Answer, MailboxWriter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.replies import translate_reply_error
from chatserver.hot.redis.wire import Reply
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as hooks

log = structlog.get_logger()

CALLS_MAX = 10_000
WAITING_MAX = 2_000

_GROUP = "rpc"


class Operation(msgspec.Struct, tag_field="op"):
    """Base class of operations on the warm tier."""


class LoadUser(Operation, tag="load_user"):
    """Register the user in the directory, and fill the user state from it."""

    user: str


class LoadKeys(Operation, tag="load_keys"):
    """Return the key set of the host application; fetch it if a fetch is due."""


class LoadChat(Operation, tag="load_chat"):
    """Load a chat into the hot tier. NotFound if there is none."""

    chat: str


class OpenDirect(Operation, tag="open_direct"):
    """Return the direct chat of two users; create it if missing. NotFound: no such other user."""

    user: str
    other: str
    is_host: bool = False


class CreateChat(Operation, tag="create_chat"):
    """Create a group. NotFound names a member who does not exist."""

    user: str
    ref: str
    members: list[str]
    name: str | None
    is_host: bool = False


class ChangeChat(Operation, tag="change_chat"):
    """Change the members or settings of a group; see `chatserver.service.membership.service`."""

    user: str
    change: frames.AnyChange


class ReadHistory(Operation, tag="history"):
    """Return messages of the warm tier below `before` or above `after`: contiguous, ascending."""

    chat: str
    before: int | None
    after: int | None
    limit: int
    ts: int | None


class FindPeriods(Operation, tag="periods"):
    """Return a member's earlier periods in a chat; see `chatserver.domain.membership_periods`."""

    chat: str
    user: str


class Block(Operation, tag="block"):
    """Block or unblock another user. NotFound if there is no such user."""

    user: str
    other: str
    is_blocked: bool


class ListBlocks(Operation, tag="list_blocks"):
    """Return the users whom a user blocks, by id."""

    user: str
    after: str | None
    limit: int


class Report(Operation, tag="report"):
    """Store a user's report of a message."""

    user: str
    chat: str
    seq: int
    reason: str


class ListCompanions(Operation, tag="list_companions"):
    """Return the available companions, by id."""

    after: str | None
    limit: int


class BeginSession(Operation, tag="begin_session"):
    """Start a session with a companion; with `is_renewal`, it replaces the active one."""

    user: str
    companion: str
    ref: str
    is_renewal: bool = False


class GetSession(Operation, tag="get_session"):
    """Return the active session with a companion. NotFound if there is none."""

    user: str
    companion: str


class EndSession(Operation, tag="end_session"):
    """End the active session with a companion, or the session of `chat`."""

    user: str
    companion: str
    chat: str | None


class MoveSession(Operation, tag="move_session"):
    """Move a session to another version of the companion."""

    user: str
    chat: str
    version: int | None


class ListSessions(Operation, tag="list_sessions"):
    """Return one page of a user's sessions."""

    user: str
    companion: str | None
    after: str | None
    limit: int


class ListInvitations(Operation, tag="list_invitations"):
    """Return one page of a user's pending invitations."""

    user: str
    after: str | None
    limit: int


class DeclineInvitation(Operation, tag="decline_invitation"):
    """Decline an invitation."""

    user: str
    chat: str


class Ask(Operation, tag="ask"):
    """Call the `before_send` webhook. It has its own stream and its own workers."""

    question: hooks.BeforeSend


class LoadFile(Operation, tag="load_file"):
    """Return a file of the directory. The payload is empty if there is none."""

    file: str


AnyOperation = (
    LoadUser
    | LoadKeys
    | LoadChat
    | OpenDirect
    | CreateChat
    | ChangeChat
    | ReadHistory
    | FindPeriods
    | LoadFile
    | Block
    | ListBlocks
    | Report
    | ListCompanions
    | BeginSession
    | GetSession
    | EndSession
    | MoveSession
    | ListSessions
    | ListInvitations
    | DeclineInvitation
    | Ask
)


class CallHead(msgspec.Struct):
    """Header of a call, which workers of other versions can decode, too.

    `user`: the user to whose fair share of the worker the call is charged
    (`chatserver.service.fair_slots`).
    """

    id: str
    gateway: str
    user: str


class Call(CallHead):
    """An operation, its caller, and the time budget of the call."""

    budget_ms: int
    operation: AnyOperation


@dataclasses.dataclass(frozen=True, slots=True)
class TakenCall:
    """A call received by a worker, and its deadline on the worker's monotonic clock."""

    call: Call
    until_s: float


class HistoryRun(msgspec.Struct):
    """Contiguous messages in ascending seq, and the coldest tier they come from."""

    messages: list[frames.Message]
    tier: Literal["warm", "cold"] = "warm"


class CompanionsPage(msgspec.Struct):
    """Result of `ListCompanions`."""

    companions: list[frames.CompanionInfo]
    next: str | None


class SessionsPage(msgspec.Struct):
    """Result of `ListSessions`."""

    sessions: list[frames.SessionInfo]
    next: str | None


class OpenedSession(msgspec.Struct):
    """Result of operations on one session; `chat` is set for an open session."""

    session: frames.SessionInfo
    chat: frames.ChatInfo | None = None


class InvitationsPage(msgspec.Struct):
    """Result of `ListInvitations`."""

    invitations: list[frames.InvitationInfo]
    next: str | None


class BlocksPage(msgspec.Struct):
    """Result of `ListBlocks`."""

    blocked: list[frames.BlockedUser]
    next: str | None


# Accepted while Redis is full: reads, and operations that protect a user.
_NEEDED_WHEN_FULL = (
    LoadUser, LoadKeys, LoadChat, LoadFile, ReadHistory, FindPeriods, Block, ListBlocks, Report,
    ListCompanions, GetSession, ListSessions,
)  # fmt: skip

_encode = msgspec.msgpack.Encoder().encode
_call_decoder = msgspec.msgpack.Decoder(Call)
_head_decoder = msgspec.msgpack.Decoder(CallHead)


def stopping() -> Unavailable:
    """Return the error for a call that was received but not started."""
    return Unavailable("the worker was stopped; try again", retry_after_ms=100)


def find_author(payload: bytes) -> str | None:
    """Return the user whose text a stored call contains; None if it contains none."""
    try:
        call = _call_decoder.decode(payload)
    except msgspec.MsgspecError:
        return None
    match call.operation:
        case Ask():
            return call.operation.question.sender
        case Report():
            return call.operation.user
        case _:
            return None


def payer_of(operation: AnyOperation) -> str:
    """Return the user or chat to whose share of the worker an operation is charged.

    That is the user whose request is being processed; else the user or the chat of the operation.
    """
    if isinstance(operation, Ask):
        return operation.question.sender
    named = getattr(operation, "user", "") or getattr(operation, "chat", "")
    return CALLER.get() or str(named)


_ERRORS: dict[str, type[ChatError]] = {
    error.code: error
    for error in (
        BadRequest,
        TooLarge,
        Forbidden,
        NotFound,
        Conflict,
        RateLimited,
        Unavailable,
        Overloaded,
    )
}


class WarmCalls:
    """Client side of the gateway. Bound: `WAITING_MAX` pending calls; beyond it `Overloaded`."""

    def __init__(self, hot: HotClient, gateway: GatewayId, timeout_s: float) -> None:
        self._hot = hot
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        hot.on_epoch.append(self._give_up)

    def _give_up(self) -> None:
        """Fail every pending call: Redis has a new epoch and may have lost calls or results."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Unavailable("warm tier: Redis was restarted, try again"))

    def answered(self, answer: Answer) -> None:
        """Handle a result from the mailbox; a result without a pending call is dropped."""
        future = self._waiting.get(answer.call)
        if future is not None and not future.done():
            future.set_result(answer)

    async def load_user(self, user: UserId) -> None:
        """See `LoadUser`."""
        await self._call(LoadUser(user))

    async def load_keys(self) -> bytes:
        """See `LoadKeys`."""
        return await self._call(LoadKeys())

    async def load_chat(self, chat: ChatId) -> None:
        """See `LoadChat`."""
        await self._call(LoadChat(chat))

    async def open_direct(
        self, user: UserId, other: UserId, *, is_host: bool = False
    ) -> frames.ChatInfo:
        """See `OpenDirect`."""
        payload = await self._call(OpenDirect(user, other, is_host))
        return msgspec.msgpack.decode(payload, type=frames.ChatInfo)

    async def create_chat(
        self,
        user: UserId,
        ref: Ref,
        members: Sequence[UserId],
        name: str | None,
        *,
        is_host: bool = False,
    ) -> frames.ChatInfo:
        """See `CreateChat`."""
        operation = CreateChat(user, ref, list(members), name, is_host)
        return msgspec.msgpack.decode(await self._call(operation), type=frames.ChatInfo)

    async def change_chat(self, user: UserId, change: frames.AnyChange) -> frames.ChatInfo:
        """See `ChangeChat`."""
        payload = await self._call(ChangeChat(user, change))
        return msgspec.msgpack.decode(payload, type=frames.ChatInfo)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        """See `ReadHistory`."""
        payload = await self._call(ReadHistory(chat, before, after, limit, ts))
        return msgspec.msgpack.decode(payload, type=HistoryRun)

    async def find_periods(self, chat: ChatId, user: UserId) -> Periods:
        """See `FindPeriods`."""
        payload = await self._call(FindPeriods(chat, user))
        return msgspec.msgpack.decode(payload, type=Periods)

    async def load_file(self, file: str) -> File | None:
        """See `LoadFile`."""
        payload = await self._call(LoadFile(file))
        return decode_file(payload) if payload else None

    async def block(self, user: UserId, other: UserId, *, is_blocked: bool) -> None:
        """See `Block`."""
        await self._call(Block(user, other, is_blocked))

    async def list_blocks(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[frames.BlockedUser], str | None]:
        """See `ListBlocks`."""
        payload = await self._call(ListBlocks(user, after, limit))
        page = msgspec.msgpack.decode(payload, type=BlocksPage)
        return page.blocked, page.next

    async def list_invitations(
        self, user: UserId, after: str | None, limit: int
    ) -> tuple[list[frames.InvitationInfo], str | None]:
        """See `ListInvitations`."""
        payload = await self._call(ListInvitations(user, after, limit))
        page = msgspec.msgpack.decode(payload, type=InvitationsPage)
        return page.invitations, page.next

    async def decline_invitation(self, user: UserId, chat: ChatId) -> None:
        """See `DeclineInvitation`."""
        await self._call(DeclineInvitation(user, chat))

    async def report(self, user: UserId, chat: ChatId, seq: int, reason: str) -> None:
        """See `Report`."""
        await self._call(Report(user, chat, seq, reason))

    async def list_companions(
        self, after: str | None, limit: int
    ) -> tuple[list[frames.CompanionInfo], str | None]:
        """See `ListCompanions`."""
        payload = await self._call(ListCompanions(after, limit))
        page = msgspec.msgpack.decode(payload, type=CompanionsPage)
        return page.companions, page.next

    async def list_sessions(
        self, user: UserId, companion: str | None, after: str | None, limit: int
    ) -> tuple[list[frames.SessionInfo], str | None]:
        """See `ListSessions`."""
        payload = await self._call(ListSessions(user, companion, after, limit))
        page = msgspec.msgpack.decode(payload, type=SessionsPage)
        return page.sessions, page.next

    async def ask_session(
        self, operation: BeginSession | GetSession | EndSession | MoveSession
    ) -> OpenedSession:
        """Send an operation on one session; see the operations."""
        return msgspec.msgpack.decode(await self._call(operation), type=OpenedSession)

    async def ask(self, question: hooks.BeforeSend) -> hooks.Verdict:
        """See `Ask`."""
        payload = await self._call(Ask(question), self._hot.keys.hook_calls())
        return msgspec.msgpack.decode(payload, type=hooks.Verdict)

    async def _call(self, operation: AnyOperation, key: str | None = None) -> bytes:
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded("too many requests wait for the warm tier", retry_after_ms=1000)
        call = Call(
            new_id(),
            self._gateway,
            payer_of(operation),
            int(self._timeout_s * 1000),
            operation,
        )
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = future

        def on_reply(reply: Reply) -> None:
            if isinstance(reply, Exception) and not future.done():
                error = translate_reply_error(reply)
                is_full = isinstance(error, Overloaded)
                future.set_exception(
                    error if is_full else Unavailable(f"warm tier: not asked: {reply}")
                )

        key = key or self._hot.keys.rpc_calls()
        is_needed = isinstance(operation, _NEEDED_WHEN_FULL)
        send = self._hot.post if is_needed else self._hot.send
        send(on_reply, "XADD", key, "MAXLEN", "~", CALLS_MAX, "*", "c", _encode(call))
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await future
        except TimeoutError:
            raise Unavailable(
                f"the warm tier did not answer within {self._timeout_s:g} s; "
                "is 'chatserver worker rpc' running?"
            ) from None
        finally:
            self._waiting.pop(call.id, None)
        if answer.code:
            kind = _ERRORS.get(answer.code, CorruptData)
            error = kind(answer.payload.decode(), retry_after_ms=answer.retry_after_ms)
            error.temporary = answer.is_temporary
            raise error
        return answer.payload


class CallQueue:
    """Worker side of the calls."""

    def __init__(self, hot: HotClient, consumer: str, clock: Clock, key: str | None = None) -> None:
        self._hot = hot
        self._clock = clock
        self._key = key or hot.keys.rpc_calls()
        self._consumer = consumer
        self._postman = MailboxWriter(hot)

    async def iter_calls(self) -> AsyncGenerator[TakenCall]:
        """Yield calls as they arrive, each to one worker. A call past its budget is failed instead.

        Calls that were read but not yielded when the generator closes fail with a retryable error.

        Raises:
            Unavailable: the connection to Redis failed; start again.
        """
        taken = collections.deque[TakenCall]()
        client = self._hot.blocking_client(self._key)
        try:
            await self._hot.create_group(self._key, _GROUP)
            while True:
                read = client.xreadgroup(
                    _GROUP, self._consumer, {self._key: ">"}, count=50, block=1000, noack=True
                )
                reply: Any = await self._hot.within(read)
                for _, entries in reply or ():
                    asked_at = self._clock.monotonic()
                    seconds, micros = await self._hot.within(client.time())
                    now_ms = seconds * 1000 + micros // 1000
                    taken.extend(self._decode(entries, asked_at, now_ms))
                while taken:
                    yield taken.popleft()
        except (redis.exceptions.RedisError, OSError) as exc:
            raise Unavailable(f"redis at {self._hot.name}: {exc}") from exc
        finally:
            for each in taken:
                self.fail(each.call, stopping())
            await client.aclose()

    def _decode(
        self, entries: Iterable[tuple[bytes, dict[bytes, bytes]]], asked_at: float, now_ms: int
    ) -> Iterator[TakenCall]:
        for name, fields in entries:
            payload = fields.get(b"c", b"")
            try:
                call = _call_decoder.decode(payload)
            except msgspec.MsgspecError as exc:
                log.error("rpc.call_not_known", entry=name.decode(), error=str(exc))
                with contextlib.suppress(msgspec.MsgspecError):
                    head = _head_decoder.decode(payload)
                    self.fail(head, Unavailable("the worker does not know this call; is it old?"))
                continue
            age_ms = max(0, now_ms - int(name.partition(b"-")[0]))
            taken = TakenCall(call, asked_at + (call.budget_ms - age_ms) / 1000)
            if age_ms >= call.budget_ms:
                self.drop(taken)
            else:
                yield taken

    def drop(self, taken: TakenCall) -> None:
        """Fail a call that waited longer than its budget."""
        operation = type(taken.call.operation).__name__
        log.warning("rpc.call_expired", operation=operation, budget_ms=taken.call.budget_ms)
        self.fail(taken.call, Unavailable("the call waited too long for an rpc worker; try again"))

    def answer(self, call: Call, payload: bytes) -> None:
        """Send the result of a call."""
        self._postman.post(GatewayId(call.gateway), Answer(call.id, "", payload))

    def fail(self, call: CallHead, error: ChatError) -> None:
        """Send the error of a call."""
        answer = Answer(
            call.id, error.code, error.message.encode(), error.temporary, error.retry_after_ms
        )
        self._postman.post(GatewayId(call.gateway), answer)
