"""Request dispatch: each frame with a request id gets one response or an error.

All sessions of a gateway share one `RequestDispatcher` instance. `send` is not handled here:
`chatserver.gateway.session.command_handler` submits it, and the commit sends the response.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chatserver.container.gateway import GatewayContainer
from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.cursor_coverage import Coverage, compare_cursor
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.errors import BadRequest
from chatserver.protocol import codec, frames
from chatserver.requests.registry import get_operation, list_operations
from chatserver.service.history.sync import EventsLost

Response = msgspec.Struct | msgspec.Raw | None

Request = (
    frames.Edit
    | frames.Delete
    | frames.React
    | frames.Mark
    | frames.Typing
    | frames.Sync
    | frames.History
    | frames.Chats
    | frames.OpenDirect
    | frames.CreateChat
    | frames.StopTurn
    | frames.JoinTurn
    | frames.Search
    | frames.AnyWorkerRequest
)


class RequestDispatcher:
    """Handles the request frames of one gateway's sessions."""

    def __init__(self, container: GatewayContainer) -> None:
        self._container = container
        list_operations()  # import all declarations before the first request

    async def handle(self, caller: RequestCaller, frame: Request) -> Response:
        """Handle a request and return its response; None if the request has no response.

        Raises:
            ChatError: the request failed; the error is the response.
        """
        CALLER.set(caller)  # a context variable; other tasks keep their own value
        user = UserId(caller.user)
        match frame:
            case frames.Edit() if (check_edit := self._container.check_edit) is not None:
                frame = await check_edit(user, frame)
                return await self._container.message_change_service.change(user, frame)
            case frames.Edit() | frames.Delete() | frames.React():
                return await self._container.message_change_service.change(user, frame)
            case frames.Mark():
                return await self._mark(user, frame)
            case frames.Typing():
                await self._container.typing_signals.send(user, frame)
                return None
            case frames.Sync():
                return await self._sync(user, frame)
            case frames.History():
                return await self._read_history(user, frame)
            case frames.Chats():
                return await self._list_chats(user, frame)
            case frames.OpenDirect():
                info = await self._container.chats.open_direct(user, UserId(frame.user))
                return frames.Ok(frame.id, info)
            case frames.CreateChat():
                return frames.Ok(frame.id, await self._container.chats.create_chat(user, frame))
            case frames.StopTurn() | frames.JoinTurn():
                return await self._container.answer_companion_frame(user, frame)
            case frames.Search():
                return await self._container.answer_search_frame(user, frame)
            case _:
                return await self._forward_to_worker(user, frame)

    async def _forward_to_worker(self, user: UserId, frame: frames.AnyWorkerRequest) -> msgspec.Raw:
        """Let a worker handle the frame; return the encoded reply."""
        operation = get_operation(frame)
        reply = await self._container.warm.handle_frame(
            user, frame, is_needed=operation.is_needed_when_full
        )
        if operation.charge is not None:
            added = operation.charge(frame, msgspec.json.decode(reply, type=frames.Ok))
            self._container.limits.charge_memory(user, added)
        return msgspec.Raw(reply)

    async def get_snapshot(
        self,
        user: UserId,
        state: InboxState,
        coverage: Coverage,
        request: int | None,
        large: Sequence[frames.LargeChat] = (),
    ) -> frames.TooLong | frames.Reset:
        """Return a snapshot for a device whose cursor is no longer valid."""
        cursor, chats = await self._container.chats.get_snapshot(user, state)
        kind = frames.TooLong if coverage is Coverage.TOO_LONG else frames.Reset
        return kind(cursor, chats, request, list(large))

    async def _mark(self, user: UserId, frame: frames.Mark) -> Response:
        if frame.read is None and frame.received is None:
            raise BadRequest("read, received: at least one is required")
        await self._container.read_marks.move(user, frame)
        return None if frame.id is None else frames.Ok(frame.id)

    async def _sync(self, user: UserId, frame: frames.Sync) -> Response:
        (state,) = await self._container.presence.set_online([user])
        after = Seq(frame.cursor.seq)
        coverage = compare_cursor(
            Epoch(frame.cursor.epoch),
            after,
            inbox_epoch=state.epoch,
            inbox_first=state.first,
            inbox_head=state.head,
        )
        if coverage is not Coverage.CURRENT:
            return await self.get_snapshot(user, state, coverage, frame.id)
        try:
            missed = await self._container.sync.list_missed(user, after, frame.limit)
        except EventsLost:
            return await self.get_snapshot(user, state, Coverage.TOO_LONG, frame.id)
        last = missed[-1].seq if missed else after
        return frames.EventPage(
            id=frame.id,
            events=[msgspec.Raw(codec.join_event(state.epoch, e.seq, e.body)) for e in missed],
            cursor=frames.Cursor(state.epoch, last),
            more=last < state.head,
        )

    async def _read_history(self, user: UserId, frame: frames.History) -> Response:
        page = await self._container.history.get_page(user, frame)
        messages = [msgspec.Raw(message) for message in page.messages]
        # Clients read the newest page first, so only this page has the read marks.
        is_newest = frame.before is None and frame.after is None
        marks = (
            await self._container.read_marks.list_marks(user, ChatId(frame.chat))
            if is_newest
            else []
        )
        return frames.HistoryPage(
            frame.id, frame.chat, messages, page.tier, page.has_more, page.stored, marks
        )

    async def _list_chats(self, user: UserId, frame: frames.Chats) -> Response:
        chats, following = await self._container.chats.list_page(user, frame.after, frame.limit)
        return frames.ChatsPage(frame.id, chats, following is not None, following)
