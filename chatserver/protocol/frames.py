"""Frame types of ``chat.v1``: client frames first, then server frames.

Each WebSocket text message is one JSON object, with ``type`` as its first field. Decoding checks
types, bounds and ids; unknown fields are ignored, and unknown types are rejected. The client
numbers its requests (``id``), and a response has its request's ``id``. In an event, ``seq`` is the
position in the user's inbox, and ``cs`` the position in the chat. Both count 1, 2, 3 … without
gaps.

This is one long file because it is the protocol's complete contract, in the order of its reference
(docs/protocol.md).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from chatserver.domain.archive_segments import ARCHIVED_KIND, LOST_KIND
from chatserver.domain.companion_ids import ID_PATTERN as COMPANION_PATTERN
from chatserver.domain.companion_ids import VERSIONS_MAX
from chatserver.domain.ids import ID_PATTERN
from chatserver.domain.membership_rules import ChatKind, HistoryFrom, Joining, Role
from chatserver.domain.page_limits import ITEMS_MAX
from chatserver.domain.write_restrictions import (
    MUTE_S_MAX,
    REASON_CHARS_MAX,
    RETENTION_S_MAX,
    SLOW_S_MAX,
)

PROTOCOL_VERSION = 1
SUBPROTOCOL = "chat.v1"
PACKED_SUBPROTOCOL = "chat.v1.msgpack"

PAGE_MAX = ITEMS_MAX
MEMBERS_MAX = 256  # maximum members of a new group, and by default of a chat that is not large
MEMBERS_SHOWN_MAX = 256
# Maximum members listed in an event, because every inbox has a copy; larger groups list none.
EVENT_MEMBERS_MAX = 20
INVITE_MAX = 99  # maximum users per request; they are added in one transaction
EXPIRES_S_MAX = 31_536_000  # maximum lifetime of a message: a year
WATCH_MAX = 100  # maximum users per `watch` frame, and per request for profiles or presence
TOKEN_CHARS_MAX = 4096
LARGE_MAX = 1000  # maximum large chats whose positions a device sends in `hello`
UNSTORED_MAX = 100  # maximum chats with unstored sends that a device lists in `hello`
ATTACHMENTS_MAX = 10
CURSOR_CHARS_MAX = 1024  # maximum characters of a signed page cursor
QUERY_CHARS_MAX = 500
RESULTS_MAX = 50
RESULTS_DEFAULT = 20
DRAFT_CHARS_MAX = 4000
PINNED_CHATS_MAX = 50
INT_MAX = 2**53 - 1

# Kinds of chat entries that are not messages.
ENTRY_KINDS: tuple[str, ...] = (
    "edit",
    "delete",
    "reaction",
    "member",
    "update",
    "pin",
    "unpin",
)
# Kinds that no message may use: the kinds of changes and of placeholders for missing entries.
RESERVED_KINDS: tuple[str, ...] = (*ENTRY_KINDS, ARCHIVED_KIND, LOST_KIND)
KIND_PATTERN = rf"^(?!(?:{'|'.join(RESERVED_KINDS)})(?![\s\S]))[a-z][a-z0-9_.-]{{0,31}}(?![\s\S])"

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
PICTURE_PATTERN = r"^[A-Za-z0-9_-]{0,64}(?![\s\S])"  # an id, or empty
Retention = Annotated[int, Meta(ge=0, le=RETENTION_S_MAX)]
RequestId = Annotated[int, Meta(ge=0, le=INT_MAX)]
SeqField = Annotated[int, Meta(ge=0, le=INT_MAX)]
ChatSeq = Annotated[int, Meta(ge=1, le=INT_MAX)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
CompanionIdField = Annotated[str, Meta(pattern=COMPANION_PATTERN)]


class Cursor(msgspec.Struct, frozen=True):
    """A position in a user's inbox, valid only in its epoch."""

    epoch: Id
    seq: SeqField


# ── client → server ─────────────────────────────────────────────────────────────────────────────


class ClientFrame(msgspec.Struct, tag_field="type", frozen=True, gc=False):
    """Base class of client frames."""


class Hello(ClientFrame, tag="hello", frozen=True):
    """Authenticates the connection; must be the first frame. With `cursor`, events resume after it.

    `large` maps each large chat to the last position (`cs`) that the device has. `unstored` maps a
    chat to its newest acked `seq`, if no `stored` frame has covered that `seq` yet.
    """

    v: Literal[1]
    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARS_MAX)]
    device: Id
    cursor: Cursor | None = None
    state: Literal["fg", "bg"] = "fg"
    large: Annotated[dict[Id, SeqField], Meta(max_length=LARGE_MAX)] | None = None
    unstored: Annotated[dict[Id, SeqField], Meta(max_length=UNSTORED_MAX)] | None = None


class Auth(ClientFrame, tag="auth", frozen=True):
    """Renews the session with a newer token for the same user.

    The session ends when the new token expires.
    """

    id: RequestId
    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARS_MAX)]


class Send(ClientFrame, tag="send", frozen=True):
    """Sends a message. A retry with the same `ref` gets the same ack and creates no duplicate.

    `attachments` are the ids of the sender's uploads to this chat. With attachments, `body` may be
    empty.
    """

    id: RequestId
    chat: Id
    ref: Id
    body: str
    kind: Annotated[str, Meta(pattern=KIND_PATTERN)] = "text"
    reply_to: Annotated[int, Meta(ge=1, le=INT_MAX)] | None = None
    expires_s: Annotated[int, Meta(ge=1, le=EXPIRES_S_MAX)] | None = None
    durability: Literal["hot", "stored"] = "hot"
    attachments: Annotated[list[Id], Meta(max_length=ATTACHMENTS_MAX)] = []


class Edit(ClientFrame, tag="edit", frozen=True):
    """Replaces the text of one of the user's own messages."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    body: str


class Delete(ClientFrame, tag="delete", frozen=True, rename={"scope": "for"}):
    """Deletes a message for everyone, or only for the user."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    scope: Literal["all", "me"] = "all"


class React(ClientFrame, tag="react", frozen=True):
    """Sets the user's reaction to a message; an empty `emoji` removes it."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    emoji: str


class Mark(ClientFrame, tag="mark", frozen=True):
    """Moves the user's read and received marks in a chat forward; they never move back."""

    chat: Id
    id: RequestId | None = None
    read: SeqField | None = None
    received: SeqField | None = None


class Sync(ClientFrame, tag="sync", frozen=True):
    """Requests the events after a cursor, one page at a time."""

    id: RequestId
    cursor: Cursor
    limit: Limit = 100


class History(ClientFrame, tag="history", frozen=True):
    """Requests messages before or after a seq of the chat, or the newest messages.

    `ts` (optional) is the timestamp of the message at that seq. It makes the request faster.
    """

    id: RequestId
    chat: Id
    before: SeqField | None = None
    after: SeqField | None = None
    limit: Limit = 50
    ts: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None


class Chats(ClientFrame, tag="chats", frozen=True):
    """Lists the user's chats by newest activity; `after` is the `next` of the previous page."""

    id: RequestId
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,16}-[A-Za-z0-9_-]{1,64}(?![\s\S])")] | None = None
    limit: Limit = 50


class OpenDirect(ClientFrame, tag="open_direct", frozen=True):
    """Opens the direct chat with another user. Idempotent."""

    id: RequestId
    user: Id


class CreateChat(ClientFrame, tag="create_chat", frozen=True):
    """Creates a group with the sender and `members`.

    A retry with the same `ref` returns the same group.
    """

    id: RequestId
    ref: Id
    members: Annotated[list[Id], Meta(min_length=1, max_length=MEMBERS_MAX - 1)]
    name: str | None = None


class Invite(ClientFrame, tag="invite", frozen=True):
    """Adds users to a group; existing members keep their role."""

    id: RequestId
    chat: Id
    ref: Id
    users: Annotated[list[Id], Meta(min_length=1, max_length=INVITE_MAX)]
    role: Literal["admin", "member"] = "member"


class Join(ClientFrame, tag="join", frozen=True):
    """Adds the user to an open group."""

    id: RequestId
    chat: Id
    ref: Id


class AcceptInvitation(ClientFrame, tag="accept_invitation", frozen=True):
    """Adds the user to a group that they were invited to."""

    id: RequestId
    chat: Id
    ref: Id


class DeclineInvitation(ClientFrame, tag="decline_invitation", frozen=True):
    """Declines an invitation without notifying anyone."""

    id: RequestId
    chat: Id


class Invitations(ClientFrame, tag="invitations", frozen=True):
    """Lists the user's pending invitations; `after` is the `next` of the previous page."""

    id: RequestId
    after: Id | None = None
    limit: Limit = 50


class Leave(ClientFrame, tag="leave", frozen=True):
    """Ends the user's own membership in a group."""

    id: RequestId
    chat: Id
    ref: Id


class Remove(ClientFrame, tag="remove", frozen=True):
    """Removes another user from a group."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id


class SetRole(ClientFrame, tag="set_role", frozen=True):
    """Changes a group member's role. An owner who transfers ownership becomes an admin."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id
    role: Role


class UpdateChat(ClientFrame, tag="update_chat", frozen=True):
    """Changes a group's name, topic, picture or settings.

    `slow_s` (slow mode) is the minimum number of seconds between two messages from the same
    ordinary member. Messages sent from now on expire after `retention_s` seconds; 0 keeps them.
    `picture` is the id of a picture that the sender uploaded with `POST /v1/me/attachments`. An
    empty `topic` or `picture` removes it.
    """

    id: RequestId
    chat: Id
    ref: Id
    name: str | None = None
    joining: Joining | None = None
    history: HistoryFrom | None = None
    slow_s: Annotated[int, Meta(ge=0, le=SLOW_S_MAX)] | None = None
    retention_s: Retention | None = None
    topic: str | None = None
    picture: Annotated[str, Meta(pattern=PICTURE_PATTERN)] | None = None


class MuteMember(ClientFrame, tag="mute_member", frozen=True):
    """Mutes a group member for `mute_s` seconds, or indefinitely if omitted; 0 unmutes."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id
    mute_s: Annotated[int, Meta(ge=0, le=MUTE_S_MAX)] | None = None


class BanMember(ClientFrame, tag="ban_member", frozen=True):
    """Removes a user from a group and prevents them from rejoining."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id


class UnbanMember(ClientFrame, tag="unban_member", frozen=True):
    """Lifts a user's ban from a group, without adding the user again."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id


AnyChange = (
    Invite
    | Join
    | AcceptInvitation
    | Leave
    | Remove
    | SetRole
    | UpdateChat
    | MuteMember
    | BanMember
    | UnbanMember
)


class Block(ClientFrame, tag="block", frozen=True):
    """Blocks a user: no direct messages or invitations in either direction."""

    id: RequestId
    user: Id


class Unblock(ClientFrame, tag="unblock", frozen=True):
    """Removes the user's own block on another user."""

    id: RequestId
    user: Id


class Blocks(ClientFrame, tag="blocks", frozen=True):
    """Lists the users that the user has blocked, by id; `after` is the previous page's `next`."""

    id: RequestId
    after: Id | None = None
    limit: Limit = 50


class Report(ClientFrame, tag="report", frozen=True):
    """Reports a message to the admins of the group and the server."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    reason: Annotated[str, Meta(max_length=REASON_CHARS_MAX)] = ""


class StopTurn(ClientFrame, tag="stop", frozen=True):
    """Stops a companion's running response; the text so far becomes the message."""

    id: RequestId
    chat: Id


class JoinTurn(ClientFrame, tag="join_turn", frozen=True):
    """Requests the text so far of a companion's running response."""

    id: RequestId
    chat: Id


class Companions(ClientFrame, tag="companions", frozen=True):
    """Lists the AI companions, sorted by id; `after` is the `next` of the previous page."""

    id: RequestId
    after: Id | None = None
    limit: Limit = 50


class CreateSession(ClientFrame, tag="create_session", frozen=True):
    """Starts a session with a companion. If one is already active, `conflict` names its chat.

    A retry with the same `ref` returns the same session while it is active.
    """

    id: RequestId
    companion: CompanionIdField
    ref: Id


class GetSession(ClientFrame, tag="get_session", frozen=True):
    """Requests the active session with a companion."""

    id: RequestId
    companion: CompanionIdField


class RenewSession(ClientFrame, tag="renew_session", frozen=True):
    """Ends the active session with a companion and starts a new one, atomically."""

    id: RequestId
    companion: CompanionIdField
    ref: Id


class DeleteSession(ClientFrame, tag="delete_session", frozen=True):
    """Ends the active session with a companion. With `chat`, ends it only if it is in that chat.

    The messages remain readable. With `forget`, the companion also forgets what it remembers from
    this session.
    """

    id: RequestId
    companion: CompanionIdField
    chat: Id | None = None
    forget: bool = False


class UpdateSession(ClientFrame, tag="update_session", frozen=True):
    """Changes the companion version that responds in a session, by default to the newest."""

    id: RequestId
    chat: Id
    version: Annotated[int, Meta(ge=1, le=VERSIONS_MAX)] | None = None


class Sessions(ClientFrame, tag="sessions", frozen=True):
    """Lists the user's companion sessions: active ones, then ended ones by companion and time.

    With `companion`, lists only the sessions with that companion: the active one, then the ended
    ones, newest first. `after` is the `next` of the previous page.
    """

    id: RequestId
    companion: CompanionIdField | None = None
    after: Annotated[str, Meta(min_length=1, max_length=CURSOR_CHARS_MAX)] | None = None
    limit: Limit = 50


class Search(ClientFrame, tag="search", frozen=True):
    """Finds messages in the user's chats by their words; `docs/search.md` describes `q`.

    `after` is the `next` of the previous page.
    """

    id: RequestId
    q: Annotated[str, Meta(min_length=1, max_length=QUERY_CHARS_MAX)]
    order: Literal["newest", "relevance"] = "newest"
    after: Annotated[str, Meta(min_length=1, max_length=CURSOR_CHARS_MAX)] | None = None
    limit: Annotated[int, Meta(ge=1, le=RESULTS_MAX)] = RESULTS_DEFAULT


class Typing(ClientFrame, tag="typing", frozen=True):
    """Notifies the other members that the user is typing. Never stored; gets no response."""

    chat: Id
    on: bool


class Watch(ClientFrame, tag="watch", frozen=True):
    """Subscribes to the presence of users and requests their current state.

    Users who share no chat with the user are ignored.
    """

    users: Annotated[list[Id], Meta(min_length=1, max_length=WATCH_MAX)]


class Unwatch(ClientFrame, tag="unwatch", frozen=True):
    """Unsubscribes from the presence of these users."""

    users: Annotated[list[Id], Meta(min_length=1, max_length=WATCH_MAX)]


class State(ClientFrame, tag="state", frozen=True):
    """Reports whether the app is in the foreground (`fg`) or background (`bg`)."""

    state: Literal["fg", "bg"]


# ── server → client ─────────────────────────────────────────────────────────────────────────────


class ServerFrame(msgspec.Struct, tag_field="type", frozen=True, omit_defaults=True):
    """Base class of server frames."""


class Limits(msgspec.Struct, frozen=True):
    """Server limits that clients need."""

    frame_bytes_max: int
    body_chars_max: int
    body_bytes_max: int
    page_max: int
    members_max: int
    sends_in_flight_max: int


class LargeChat(msgspec.Struct, frozen=True):
    """A large chat, and the `cs` after which its events begin. The chat's events have `seq` 0."""

    chat: str
    seq: int


class Welcome(ServerFrame, tag="welcome", frozen=True, omit_defaults=False):
    """Response to `hello`. `seq` is the newest seq of the inbox in `epoch`."""

    session: str
    user: str
    epoch: str
    seq: int
    heartbeat_ms: int
    limits: Limits
    large: list[LargeChat]


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file attached to a message.

    `type` is the media type that the uploader specified. `size` is in bytes. `thumb`: a thumbnail
    exists. `width` and `height` are the dimensions of the image, not of the thumbnail.
    """

    id: str
    name: str
    type: str
    size: int
    width: int | None = None
    height: int | None = None
    thumb: bool = False


class Ai(msgspec.Struct, frozen=True, omit_defaults=True):
    """An AI message's model, token counts (or estimates) and outcome.

    Values of `end`:

    - ``done``: the response is complete
    - ``length``: the response reached a limit
    - ``refused``: the model refused
    - ``stopped``: the user stopped the response
    - ``broken``: the stream failed
    - ``late``: the stream timed out
    - ``failed``: there is no response; `body` gives the reason as text, `code` as an error code

    `tools` are the names of the tools that the model used.
    """

    model: str
    end: str = "done"  # one of the values in the docstring; newer servers may add more
    tokens_in: int = 0
    tokens_out: int = 0
    code: str = ""
    tools: list[str] = []


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A chat entry, as sent in events, on history pages and as a chat's `last`.

    Most entries are messages. An entry whose kind is in `ENTRY_KINDS` is a change: an edit, delete,
    reaction, pin or unpin of the message at `target`, a new role for `user`, or a new chat `name`.

    `muted_until` (Unix seconds, 0: indefinitely) is set for a `member` who is muted; the value 1
    means unmuted. `banned` is set for a removed member who may not rejoin. `rev` is the seq of the
    last entry that changed this message. A `deleted` message has no body; it is also `shredded` if
    its encryption key was deleted. `ai` is set for messages generated by a model.
    """

    seq: int
    ts: int
    chat: str
    mid: str
    sender: str
    ref: str
    kind: str
    body: str
    reply_to: int | None = None
    target: int | None = None
    user: str | None = None
    role: str | None = None
    name: str | None = None
    rev: int = 0
    edited_ts: int = 0
    edited_seq: int = 0
    deleted: bool = False
    reactions: dict[str, str] = {}
    expires_at: int | None = None
    attachments: list[Attachment] = []
    muted_until: int | None = None
    banned: bool = False
    ai: Ai | None = None
    shredded: bool = False


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member's read and received positions in a chat."""

    user: str
    read: int = 0
    received: int = 0


class ChatInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chat's properties. `members` lists the first `MEMBERS_SHOWN_MAX` of `count`, by id.

    - `roles`: the listed members whose role is above member
    - `muted`: muted members, with the end of the mute (Unix seconds, 0: indefinitely)
    - `blocked`: the two users cannot write to each other
    - `large`: the chat's events have `seq` 0, and `cs` is their position. With `since` (in events),
      this applies only to entries above chat seq `since`
    - `ended`: the chat is an ended companion session, read-only
    - `invited`: the users invited by this request, who become members when they accept
    - `topic`, `picture`: only for a group; `picture` is an id, see `GET /v1/chats/{chat}/picture`
    """

    chat: str
    kind: ChatKind
    members: list[str]
    name: str | None = None
    count: int = 0
    roles: dict[str, Role] = {}
    joining: Joining = "invited"
    history: HistoryFrom = "joined"
    slow_s: int = 0
    retention_s: int = 0
    muted: dict[str, int] = {}
    blocked: bool = False
    large: bool = False
    since: int | None = None
    ended: bool = False
    invited: list[str] = []
    topic: str | None = None
    picture: str | None = None


class CompanionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An AI companion. `id` is its user id in chats. `version` is its newest version."""

    id: str
    name: str
    version: int


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's session with a companion. Version `ai_version` of the companion responds.

    Times are Unix milliseconds. A session with a `delete_time` has ended, and its chat is
    read-only.
    """

    companion: str
    chat: str
    ai_version: int
    create_time: int
    delete_time: int | None = None


class Event(ServerFrame, tag="event", frozen=True):
    """An event in the user's inbox, at inbox position `seq`.

    Kind `read` sets `read`, `chat` sets `info`, and `hidden` sets `hidden`. Every other kind sets
    `message`; `cs` is then the message's position in the chat.
    """

    epoch: str
    seq: int
    kind: Literal[
        "message",
        "edit",
        "delete",
        "reaction",
        "member",
        "update",
        "pin",
        "unpin",
        "read",
        "chat",
        "hidden",
    ]
    chat: str
    cs: int = 0
    message: Message | UnsetType = UNSET
    read: Marks | UnsetType = UNSET
    info: ChatInfo | UnsetType = UNSET
    hidden: list[int] | UnsetType = UNSET


class Signal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """A typing signal. Signals are never stored, and are dropped if the client reads too slowly."""

    kind: Literal["typing"]
    chat: str
    from_: str = msgspec.field(name="from")
    on: bool


class InvitationSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """The user was invited to a group; request `invitations` again."""

    kind: Literal["invitation"]
    chat: str
    from_: str = msgspec.field(name="from")


class PresenceSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """A user's presence. `last_seen` (Unix µs) is set for an offline user, if known."""

    kind: Literal["presence"]
    from_: str = msgspec.field(name="from")
    state: Literal["online", "away", "offline"]
    last_seen: int | UnsetType = UNSET


class AiSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """Part `index` of a companion's streamed response to the message at `seq`.

    `turn` identifies the response; a new `turn` for the same `seq` means that the response has
    restarted. Index 0 has no text. A part with `tool` has no text either; the model is using that
    tool. The last part has `end`; after it, the message arrives as an event.
    """

    kind: Literal["ai.delta"]
    chat: str
    from_: str = msgspec.field(name="from")
    turn: str
    seq: int
    index: int
    text: str
    end: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET


class Turn(ServerFrame, tag="turn", frozen=True, omit_defaults=False):
    """Response to `join_turn`. `text` covers the parts up to `index`; later parts are signals.

    `turn` is empty if there is no running or recently ended response.
    """

    id: int
    chat: str
    turn: str
    seq: int
    index: int
    text: str
    end: str | UnsetType = UNSET


class PostSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """A followed user has published a post with the id `post`."""

    kind: Literal["post"]
    from_: str = msgspec.field(name="from")
    post: str


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text that a user has not sent yet. The higher `version` (time of the last keystroke) wins."""

    text: Annotated[str, Meta(max_length=DRAFT_CHARS_MAX)]
    version: SeqField


class ChatPreferences(msgspec.Struct, frozen=True):
    """A user's own preferences for a chat.

    `rev` increases with each change. `muted_until` is in Unix seconds; 0 means muted indefinitely,
    null not muted. `cleared_upto` is the chat seq up to which the user has cleared the chat.
    """

    chat: str
    rev: int = 0
    archived: bool = False
    muted_until: int | None = None
    marked_unread: bool = False
    draft: Draft | None = None
    cleared_upto: int = 0


class PinnedChats(msgspec.Struct, frozen=True):
    """Chats that the user has pinned to the top of the chat list, in order."""

    chats: list[str]
    rev: int = 0


class ChatPreferencesSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """The user changed their preferences for a chat. Sent to the user's own devices."""

    kind: Literal["chat_preferences"]
    from_: str = msgspec.field(name="from")
    preferences: ChatPreferences


class PinnedChatsSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """The user changed their pinned chats. Sent to the user's own devices."""

    kind: Literal["pinned_chats"]
    from_: str = msgspec.field(name="from")
    pinned: PinnedChats


class Ack(ServerFrame, tag="ack", frozen=True, omit_defaults=False):
    """A request's entry is committed. `dup`: an earlier request with this `ref` committed it."""

    id: int
    ref: str
    mid: str
    seq: int
    ts: int
    dup: bool
    durability: Literal["hot", "stored"]


class Stored(ServerFrame, tag="stored", frozen=True):
    """All of the user's messages in `chat` up to seq `upto` are in the warm tier."""

    chat: str
    upto: int


class Ok(ServerFrame, tag="ok", frozen=True):
    """The request succeeded. `chat` or `session` is set if the request was about either."""

    id: int
    chat: ChatInfo | None = None
    session: SessionInfo | None = None


class ChatSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item in a chat list. `top` is the chat's newest seq.

    `peer` (the other user's marks) is set only in a direct chat. `hidden` (the seqs that the user
    deleted for themselves) is set only in a snapshot.
    """

    chat: str
    kind: ChatKind
    top: int = 0
    read: int = 0
    unread: int = 0
    members: list[str] = []
    name: str | None = None
    last: Message | None = None
    peer: Marks | None = None
    ended: bool = False
    hidden: list[int] = []
    picture: str | None = None


class EventPage(ServerFrame, tag="page", frozen=True, omit_defaults=False):
    """Response to `sync`."""

    id: int
    events: list[msgspec.Raw]
    cursor: Cursor
    more: bool


class HistoryPage(ServerFrame, tag="page", frozen=True, omit_defaults=False):
    """Response to `history`: contiguous messages, in order of seq.

    `tier` is the coldest tier read: ``hot``, ``warm`` or ``cold``. `stored` is the chat seq up to
    which the warm tier has stored the chat. `marks` has the members' read marks, but only on the
    newest page of a chat with up to 32 members.
    """

    id: int
    chat: str
    messages: list[msgspec.Raw]
    tier: Literal["hot", "warm", "cold"]
    more: bool
    stored: int = 0
    marks: list[Marks] = []


class ChatsPage(ServerFrame, tag="page", frozen=True):
    """Response to `chats`. `next` is the `after` for the next page, absent on the last page."""

    id: int
    chats: list[ChatSummary]
    more: bool
    next: str | None = None


class BlockedUser(msgspec.Struct, frozen=True):
    """A blocked user; `since` is in Unix milliseconds."""

    user: str
    since: int


class BlocksPage(ServerFrame, tag="page", frozen=True):
    """Response to `blocks`."""

    id: int
    blocked: list[BlockedUser]
    more: bool
    next: str | None = None


class InvitationInfo(msgspec.Struct, frozen=True):
    """An invitation to a group. `at` is in Unix milliseconds, `expires_at` in Unix seconds."""

    chat: str
    inviter: str
    at: int
    expires_at: int
    name: str | None = None


class InvitationsPage(ServerFrame, tag="page", frozen=True):
    """Response to `invitations`. A page with `next` may have fewer than `limit`, or none."""

    id: int
    invitations: list[InvitationInfo]
    more: bool
    next: str | None = None


class CompanionsPage(ServerFrame, tag="page", frozen=True):
    """Response to `companions`."""

    id: int
    companions: list[CompanionInfo]
    more: bool
    next: str | None = None


class SessionsPage(ServerFrame, tag="page", frozen=True):
    """Response to `sessions`. `next` is the `after` for the next page."""

    id: int
    sessions: list[SessionInfo]
    more: bool
    next: str | None = None


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a search result's snippet, as plain text. `hit`: this part matches the query."""

    text: str
    hit: bool = False


class SearchResult(msgspec.Struct, frozen=True):
    """A matching message. `snippet` is an excerpt of its text, split into plain-text segments."""

    message: Message
    snippet: list[Segment]


class SearchPage(ServerFrame, tag="page", frozen=True):
    """Response to `search`. A page with a `next` may have fewer results than `limit`, or none."""

    id: int
    results: list[msgspec.Raw]
    more: bool
    next: str | None = None


class TooLong(ServerFrame, tag="too_long", frozen=True):
    """The hot tier no longer has all missed events. Start from this snapshot.

    `large` lists large chats, as in `welcome`.
    """

    cursor: Cursor
    chats: list[ChatSummary]
    id: int | None = None
    large: list[LargeChat] = []


class Reset(ServerFrame, tag="reset", frozen=True):
    """The cursor is from another epoch, or ahead of the inbox. Start from this snapshot.

    `large` lists large chats, as in `welcome`.
    """

    cursor: Cursor
    chats: list[ChatSummary]
    id: int | None = None
    large: list[LargeChat] = []


class Error(ServerFrame, tag="error", frozen=True, omit_defaults=False):
    """A request failed. `temporary`: a retry after `retry_after_ms` may succeed.

    `ref`: that of the request, if it has one.
    """

    code: str
    message: str
    temporary: bool
    id: int | UnsetType = UNSET
    ref: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class Bye(ServerFrame, tag="bye", frozen=True, omit_defaults=False):
    """Sent before the server closes the connection."""

    code: int
    reason: str
    retry_after_ms: int | UnsetType = UNSET


AnyServerFrame = (
    Welcome
    | Event
    | Signal
    | InvitationSignal
    | PresenceSignal
    | AiSignal
    | Turn
    | PostSignal
    | ChatPreferencesSignal
    | PinnedChatsSignal
    | Ack
    | Stored
    | Ok
    | EventPage
    | HistoryPage
    | ChatsPage
    | BlocksPage
    | InvitationsPage
    | CompanionsPage
    | SessionsPage
    | SearchPage
    | TooLong
    | Reset
    | Error
    | Bye
)
