"""docs/protocol.md: its examples decode, and it describes every frame, code and limit."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from chatserver.config import Gateway, Limits, Presence, Redis
from chatserver.domain.page_limits import BYTES_MAX
from chatserver.domain.text_validation import (
    BODY_BYTES_MAX,
    BODY_CHARS_MAX,
    COMBINING_RUN_MAX,
    NAME_CHARS_MAX,
)
from chatserver.features.chat_preferences import frames as preferences_frames
from chatserver.features.companions import frames as companion_frames
from chatserver.features.search import frames as search_frames
from chatserver.features.social import frames as social_frames
from chatserver.gateway.session.session_limits import (
    HELD_FRAMES_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    SENDS_IN_FLIGHT_MAX,
)
from chatserver.gateway.session.session_opening import HELLO_TIMEOUT_S
from chatserver.gateway.transport import connection
from chatserver.gateway.transport.handshake import HANDSHAKE_TIMEOUT_S
from chatserver.hot.users.presence_states import LAST_SEEN_TTL_S
from chatserver.protocol import codec, frames
from chatserver.protocol.error_codes import CODES, Close
from chatserver.requests.registry import decode_frame
from chatserver.service.presence.subscriptions import SUBSCRIBED_USERS_MAX
from tests.unit.protocol.shapes import CLIENT_FRAMES, SERVER_FRAMES, tag_of

TEXT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
FRAMES = (*CLIENT_FRAMES, *SERVER_FRAMES)
FRAMES_BY_NAME = {cls.__name__: cls for cls in FRAMES}
FENCE = re.compile(r"^```json *(\w*)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [(name, example) for name, example in FENCE.findall(TEXT)]
HEADINGS = {
    frames.InvitationSignal: "`signal` of an invitation",
    frames.PresenceSignal: "`signal` of presence",
    companion_frames.AiSignal: "`signal` of an answer",
    social_frames.PostSignal: "`signal` of a post",
    preferences_frames.ChatPreferencesSignal: "`signal` of chat preferences",
    preferences_frames.PinnedChatsSignal: "`signal` of pinned chats",
    frames.EventPage: "`page` of events",
    frames.HistoryPage: "`page` of messages",
    frames.ChatsPage: "`page` of chats",
    frames.BlocksPage: "`page` of blocks",
    frames.InvitationsPage: "`page` of invitations",
    companion_frames.SessionReply: "`ok` of a session",
    companion_frames.CompanionsPage: "`page` of companions",
    companion_frames.SessionsPage: "`page` of sessions",
    search_frames.SearchPage: "`page` of results",
}


def section_of(cls: type[msgspec.Struct]) -> str:
    """Return the text under the heading of a frame."""
    heading = HEADINGS.get(cls, f"`{tag_of(cls)}`")
    _, found, rest = TEXT.partition(f"\n### {heading}\n")
    assert found, f"there is no section {heading}"
    return re.split(r"\n##", rest)[0]


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=lambda value: value[:40])
def test_example_decodes_as_its_frame_type(name: str, example: str) -> None:
    """Each JSON example is a frame of the given type without unknown fields."""
    cls = FRAMES_BY_NAME[name]

    frame = msgspec.json.decode(example, type=cls)

    written = msgspec.json.decode(example)
    decoded = msgspec.json.decode(codec.encode(frame))
    assert written.items() <= decoded.items()
    if issubclass(cls, frames.ClientFrame):
        assert decode_frame(example.encode()) == frame


@pytest.mark.parametrize("cls", FRAMES, ids=lambda cls: cls.__name__)
def test_page_has_section_and_example_of_every_frame(cls: type[msgspec.Struct]) -> None:
    """Every frame has a section with an example, and every field is described."""
    section = section_of(cls)

    assert f"```json {cls.__name__}\n" in section
    prose = FENCE.sub("", section)
    words = {word.strip("`") for word in re.findall(r"`[^`]+`", prose)}
    unnamed = {name for name in cls.__struct_encode_fields__ if name not in words}
    assert unnamed <= {"id", "chat"}, unnamed  # these fields are described once for all frames


def test_page_has_every_error_code_of_the_table() -> None:
    """Code, HTTP status and retry agree with the table."""
    for code, meaning in CODES.items():
        retry = "yes" if meaning.is_temporary else "no"
        assert f"| `{code}` | {meaning.http_status} | {retry} |" in TEXT


def test_page_has_every_close_code() -> None:
    """Each close code is in the table, with its name."""
    for code in Close:
        assert f"| {int(code)} | `{code.name.lower()}` |" in TEXT


def test_page_has_the_current_limits() -> None:
    """Each number on the page equals the default of its setting or constant."""
    gateway, redis, presence, limits = Gateway(), Redis(), Presence(), Limits()
    flat = " ".join(TEXT.split())

    for text in (
        f"at most {gateway.frame_bytes_max:,} bytes and {connection.FRAGMENTS_MAX:,} fragments",
        f"complete within {connection.MESSAGE_TIMEOUT_S:g} seconds",
        f"the handshake within {HANDSHAKE_TIMEOUT_S:g} seconds",
        f"`hello` must arrive within {HELLO_TIMEOUT_S:g} seconds",
        f"a ping about every {gateway.ping_interval_s:g} seconds",
        f"no pong arrives within {gateway.pong_timeout_s:g} seconds",
        f"`limits.sends_in_flight_max` ({SENDS_IN_FLIGHT_MAX})",
        f"At most {REQUESTS_IN_FLIGHT_MAX} requests",
        f"Up to {HELD_FRAMES_MAX} further frames",
        f"did not read for {connection.SLOW_TIMEOUT_S:g} seconds",
        f"more than {gateway.sessions_per_user_max} connections",
        f"frame) within {presence.away_after_s / 60:g} minutes",
        f"within {presence.offline_grace_s:g} seconds",
        f"for {LAST_SEEN_TTL_S / 86_400:g} days",
        f"at most {SUBSCRIBED_USERS_MAX} users",
        f"1 to {frames.WATCH_MAX} ids",
        f"{limits.sends.per_s:g} messages a second with a burst of {limits.sends.burst}",
        f"{limits.requests.per_s:g} tokens a second with a burst of {limits.requests.burst}",
        f"connections a second with a burst of {limits.connections.burst:,}",
        f"one refused `hello` a second with a burst of {limits.failures.burst}",
        f"1 to {BODY_CHARS_MAX:,} characters, at most {BODY_BYTES_MAX:,} bytes",
        f"1 to {NAME_CHARS_MAX} characters",
        f"at most {COMBINING_RUN_MAX} combining marks",
        f"1 to {frames.MEMBERS_MAX - 1} ids",
        f"1 to {frames.PAGE_MAX}, default 50",
        f"1 to {frames.TOKEN_CHARS_MAX} characters",
        f"keeps ({redis.inbox_max:,} events)",
        f"at most {BYTES_MAX // 1024} KB",
    ):
        assert text in flat, text


def test_page_links_have_a_heading() -> None:
    """Each link within the page points to an existing heading."""
    anchors = {
        re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }

    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors
