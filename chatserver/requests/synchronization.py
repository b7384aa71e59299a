"""Requests by which a device reads the events that it has missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from chatserver.domain.cursor_coverage import Coverage, compare_cursor
from chatserver.domain.ids import Epoch, Seq, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.protocol import codec, frames
from chatserver.protocol.request_costs import by_limit
from chatserver.requests.operation import request
from chatserver.service.history.sync import EventsLost

if TYPE_CHECKING:
    from chatserver.container.gateway import GatewayContainer

Snapshot = frames.TooLong | frames.Reset


async def read_snapshot(
    container: GatewayContainer,
    user: UserId,
    state: InboxState,
    coverage: Coverage,
    *,
    request_id: int | None = None,
    large: Sequence[frames.LargeChat] = (),
) -> Snapshot:
    """Return a snapshot for a device whose cursor is no longer valid."""
    cursor, chats = await container.chats.get_snapshot(user, state)
    kind = frames.TooLong if coverage is Coverage.TOO_LONG else frames.Reset
    return kind(cursor, chats, request_id, list(large))


@request(
    frames.Sync,
    reply=(frames.EventPage, frames.TooLong, frames.Reset),
    runs_in="gateway",
    cost=by_limit,
)
async def sync(
    container: GatewayContainer, user: UserId, frame: frames.Sync
) -> frames.EventPage | Snapshot:
    """Return one page of the events after the cursor, or a snapshot if they are unavailable."""
    (state,) = await container.presence.set_online([user])
    after = Seq(frame.cursor.seq)
    coverage = compare_cursor(
        Epoch(frame.cursor.epoch),
        after,
        inbox_epoch=state.epoch,
        inbox_first=state.first,
        inbox_head=state.head,
    )
    if coverage is not Coverage.CURRENT:
        return await read_snapshot(container, user, state, coverage, request_id=frame.id)
    try:
        missed = await container.sync.list_missed(user, after, frame.limit)
    except EventsLost:
        coverage = Coverage.TOO_LONG
        return await read_snapshot(container, user, state, coverage, request_id=frame.id)
    last = missed[-1].seq if missed else after
    return frames.EventPage(
        id=frame.id,
        events=[msgspec.Raw(codec.join_event(state.epoch, e.seq, e.body)) for e in missed],
        cursor=frames.Cursor(state.epoch, last),
        more=last < state.head,
    )
