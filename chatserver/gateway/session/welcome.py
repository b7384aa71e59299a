"""Welcome frame: limits and start position. Pure functions."""

from __future__ import annotations

from chatserver import config
from chatserver.domain.cursor_coverage import Coverage, compare_cursor
from chatserver.domain.ids import Epoch, Seq, SessionId, UserId
from chatserver.domain.inboxes import InboxState
from chatserver.domain.membership_rules import GROUP_MEMBERS_MAX
from chatserver.domain.page_limits import ITEMS_MAX
from chatserver.gateway.session.session_limits import SENDS_IN_FLIGHT_MAX
from chatserver.protocol import frames


def make_welcome(
    session: SessionId,
    user: UserId,
    state: InboxState,
    large: list[frames.LargeChat],
    settings: config.Settings,
) -> frames.Welcome:
    """Return the welcome frame; `large` lists the user's large chats."""
    gateway = settings.gateway
    return frames.Welcome(
        session=session,
        user=user,
        epoch=state.epoch,
        seq=state.head,
        heartbeat_ms=int(gateway.ping_interval_s * 1000),
        limits=frames.Limits(
            frame_bytes_max=gateway.frame_bytes_max,
            body_chars_max=settings.chats.body_chars_max,
            body_bytes_max=settings.chats.body_bytes_max,
            page_max=ITEMS_MAX,
            members_max=GROUP_MEMBERS_MAX,
            sends_in_flight_max=SENDS_IN_FLIGHT_MAX,
        ),
        large=large,
    )


def find_start(cursor: frames.Cursor | None, state: InboxState) -> tuple[Coverage, Seq]:
    """Return `(coverage, seq)`: whether the cursor is still valid, and the start position."""
    if cursor is None:
        return Coverage.CURRENT, state.head
    coverage = compare_cursor(
        Epoch(cursor.epoch),
        Seq(cursor.seq),
        inbox_epoch=state.epoch,
        inbox_first=state.first,
        inbox_head=state.head,
    )
    return coverage, Seq(cursor.seq) if coverage is Coverage.CURRENT else state.head
