"""The frames of ``chat.v1``, as types: what a client may send and what the server answers.

One JSON object per WebSocket text message, its ``type`` first. Decoding checks types, bounds and
ids in one step; unknown fields are ignored, unknown types are a bad request. ``id`` is the
client's number for a request and comes back in the answer. ``seq`` in an event is the place in
the user's inbox, ``cs`` the place in the chat; both count 1, 2, 3 … without a gap.

One file, though a long one: declarations alone, to be read from top to bottom as a vocabulary. What
clients say comes first, what the server says second; split, a request, its answer and the types
that both are made of would stand in three files.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from chatserver.domain.companions import ID_PATTERN as COMPANION_PATTERN
from chatserver.domain.companions import VERSIONS_MAX
from chatserver.domain.ids import ID_PATTERN
from chatserver.domain.membership import ChatKind, HistoryFrom, Joining, Role
from chatserver.domain.moderation import (
    MUTE_S_MAX,
    REASON_CHARS_MAX,
    RETENTION_S_MAX,
    SLOW_S_MAX,
)
from chatserver.domain.pages import ITEMS_MAX
from chatserver.domain.segments import ARCHIVED_KIND, LOST_KIND

PROTOCOL_VERSION = 1
SUBPROTOCOL = "chat.v1"
PACKED_SUBPROTOCOL = "chat.v1.msgpack"

PAGE_MAX = ITEMS_MAX
MEMBERS_MAX = 256  # of a chat with write fan-out
MEMBERS_SHOWN_MAX = 256  # in what a chat is
EVENT_MEMBERS_MAX = 20  # an event, which every member's inbox keeps, names none of more members
INVITE_MAX = 99  # users in one request: it is one transaction
EXPIRES_S_MAX = 31_536_000  # a year
WATCH_MAX = 100  # users in one frame
TOKEN_CHARS_MAX = 4096
LARGE_MAX = 1000  # large chats of a user
UNSTORED_MAX = 100  # chats of a device with sends that are not stored
ATTACHMENTS_MAX = 10  # of one message
CURSOR_CHARS_MAX = 1024  # of a place in a list that is sealed
INT_MAX = 2**53 - 1

# Entries of a chat that are not messages.
ENTRY_KINDS = ("edit", "delete", "reaction", "member", "update")
# What no message may call itself: those, and what stands in for an entry that is not there.
RESERVED_KINDS = (*ENTRY_KINDS, ARCHIVED_KIND, LOST_KIND)
KIND_PATTERN = rf"^(?!(?:{'|'.join(RESERVED_KINDS)})(?![\s\S]))[a-z][a-z0-9_.-]{{0,31}}(?![\s\S])"

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Retention = Annotated[int, Meta(ge=0, le=RETENTION_S_MAX)]
RequestId = Annotated[int, Meta(ge=0, le=INT_MAX)]
SeqField = Annotated[int, Meta(ge=0, le=INT_MAX)]
ChatSeq = Annotated[int, Meta(ge=1, le=INT_MAX)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
CompanionIdField = Annotated[str, Meta(pattern=COMPANION_PATTERN)]


class Cursor(msgspec.Struct, frozen=True):
    """A place in a user's inbox. Valid in its epoch only."""

    epoch: Id
    seq: SeqField


# ── client → server ─────────────────────────────────────────────────────────────────────────────


class ClientFrame(msgspec.Struct, tag_field="type", frozen=True, gc=False):
    """Anything a client sends. In no reference cycle, so the collector need not look at it."""


class Hello(ClientFrame, tag="hello", frozen=True):
    """Must be the first frame. With `cursor`, the server sends what was missed after it.

    `large` is the same for large chats: the last place (`cs`) that the device has of each.
    `unstored` names the chats with acked sends of the device that are not known to be stored, and
    the newest `seq` of these: the server sends `stored` as far as they are, now and when they are.
    """

    v: Literal[1]
    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARS_MAX)]
    device: Id
    cursor: Cursor | None = None
    state: Literal["fg", "bg"] = "fg"
    large: Annotated[dict[Id, SeqField], Meta(max_length=LARGE_MAX)] | None = None
    unstored: Annotated[dict[Id, SeqField], Meta(max_length=UNSTORED_MAX)] | None = None


class Auth(ClientFrame, tag="auth", frozen=True):
    """A newer token of the same user: the session then lives as long as that one."""

    id: RequestId
    token: Annotated[str, Meta(min_length=1, max_length=TOKEN_CHARS_MAX)]


class Send(ClientFrame, tag="send", frozen=True):
    """A message. `ref` names it: the same ref again gives the same answer and no second message.

    With `attachments`, the ids of the sender's uploads to this chat, `body` may be empty.
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
    """Gives a message of the user's own another text."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    body: str


class Delete(ClientFrame, tag="delete", frozen=True, rename={"scope": "for"}):
    """Takes a message away: from everybody, or from the user's own sight alone."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    scope: Literal["all", "me"] = "all"


class React(ClientFrame, tag="react", frozen=True):
    """Sets the user's one reaction to a message; an empty one takes it away."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    emoji: str


class Mark(ClientFrame, tag="mark", frozen=True):
    """Moves the user's own marks in a chat forward; they never move back."""

    chat: Id
    id: RequestId | None = None
    read: SeqField | None = None
    received: SeqField | None = None


class Sync(ClientFrame, tag="sync", frozen=True):
    """Asks for the events after a cursor, a page at a time."""

    id: RequestId
    cursor: Cursor
    limit: Limit = 100


class History(ClientFrame, tag="history", frozen=True):
    """Asks for messages before or after a seq of the chat; without either, for the newest.

    `ts` may carry the timestamp of the message at that seq: a hint that saves a search.
    """

    id: RequestId
    chat: Id
    before: SeqField | None = None
    after: SeqField | None = None
    limit: Limit = 50
    ts: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None


class Chats(ClientFrame, tag="chats", frozen=True):
    """Asks for the user's chats, newest activity first; `after` is the `next` of the last page."""

    id: RequestId
    after: Annotated[str, Meta(pattern=r"^[0-9]{1,16}-[A-Za-z0-9_-]{1,64}(?![\s\S])")] | None = None
    limit: Limit = 50


class OpenDirect(ClientFrame, tag="open_direct", frozen=True):
    """Opens the direct chat with another user, the same one every time."""

    id: RequestId
    user: Id


class CreateChat(ClientFrame, tag="create_chat", frozen=True):
    """Creates a group of the sender and `members`. The same `ref` finds the same group again."""

    id: RequestId
    ref: Id
    members: Annotated[list[Id], Meta(min_length=1, max_length=MEMBERS_MAX - 1)]
    name: str | None = None


class Invite(ClientFrame, tag="invite", frozen=True):
    """Makes users members of a group; those who are already stay what they are."""

    id: RequestId
    chat: Id
    ref: Id
    users: Annotated[list[Id], Meta(min_length=1, max_length=INVITE_MAX)]
    role: Literal["admin", "member"] = "member"


class Join(ClientFrame, tag="join", frozen=True):
    """Makes the user a member of a group that is open to join."""

    id: RequestId
    chat: Id
    ref: Id


class AcceptInvitation(ClientFrame, tag="accept_invitation", frozen=True):
    """Makes the user a member of a group that somebody invited them to."""

    id: RequestId
    chat: Id
    ref: Id


class DeclineInvitation(ClientFrame, tag="decline_invitation", frozen=True):
    """Refuses an invitation without notifying anyone."""

    id: RequestId
    chat: Id


class Invitations(ClientFrame, tag="invitations", frozen=True):
    """Asks for the user's pending invitations; `after` is the `next` of the last page."""

    id: RequestId
    after: Id | None = None
    limit: Limit = 50


class Leave(ClientFrame, tag="leave", frozen=True):
    """Ends the user's own membership of a group."""

    id: RequestId
    chat: Id
    ref: Id


class Remove(ClientFrame, tag="remove", frozen=True):
    """Ends somebody else's membership of a group."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id


class SetRole(ClientFrame, tag="set_role", frozen=True):
    """Gives a member of a group another role. Who makes another one owner becomes an admin."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id
    role: Role


class UpdateChat(ClientFrame, tag="update_chat", frozen=True):
    """Changes what a group is called, who may join, and from where members may read it.

    `slow_s` is slow mode: seconds between two messages of a member who is no more than that.
    `retention_s`: messages sent from now on end so long after they were sent; 0: they stay.
    """

    id: RequestId
    chat: Id
    ref: Id
    name: str | None = None
    joining: Joining | None = None
    history: HistoryFrom | None = None
    slow_s: Annotated[int, Meta(ge=0, le=SLOW_S_MAX)] | None = None
    retention_s: Retention | None = None


class MuteMember(ClientFrame, tag="mute_member", frozen=True):
    """Keeps a member of a group from writing, for `mute_s` or for ever; 0: may write again."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id
    mute_s: Annotated[int, Meta(ge=0, le=MUTE_S_MAX)] | None = None


class BanMember(ClientFrame, tag="ban_member", frozen=True):
    """Removes a user from a group, and keeps him from coming back."""

    id: RequestId
    chat: Id
    ref: Id
    user: Id


class UnbanMember(ClientFrame, tag="unban_member", frozen=True):
    """Lets a user come back who was banned; he is not a member with that."""

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
AnyInvitation = DeclineInvitation | Invitations


class Block(ClientFrame, tag="block", frozen=True):
    """Ends direct messages and invitations between the user and another one, both ways."""

    id: RequestId
    user: Id


class Unblock(ClientFrame, tag="unblock", frozen=True):
    """Ends the user's own `block`."""

    id: RequestId
    user: Id


class Blocks(ClientFrame, tag="blocks", frozen=True):
    """Asks whom the user blocks, by id; `after` is the `next` of the last page."""

    id: RequestId
    after: Id | None = None
    limit: Limit = 50


class Report(ClientFrame, tag="report", frozen=True):
    """Tells the admins of a group, and those of the server, of a message."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    reason: Annotated[str, Meta(max_length=REASON_CHARS_MAX)] = ""


AnyModeration = Block | Unblock | Blocks | Report


class StopTurn(ClientFrame, tag="stop", frozen=True):
    """Ends the answer that a companion is making: what it has said so far is its message."""

    id: RequestId
    chat: Id


class JoinTurn(ClientFrame, tag="join_turn", frozen=True):
    """Asks for what a companion has said so far of the answer that it is making."""

    id: RequestId
    chat: Id


class Companions(ClientFrame, tag="companions", frozen=True):
    """Asks which AI companions there are, by id; `after` is the `next` of the last page."""

    id: RequestId
    after: Id | None = None
    limit: Limit = 50


class CreateSession(ClientFrame, tag="create_session", frozen=True):
    """Begins a session with a companion; `conflict` names the chat of one that is active.

    The same `ref` finds the same session again while it is the active one.
    """

    id: RequestId
    companion: CompanionIdField
    ref: Id


class GetSession(ClientFrame, tag="get_session", frozen=True):
    """Asks for the active session with a companion."""

    id: RequestId
    companion: CompanionIdField


class RenewSession(ClientFrame, tag="renew_session", frozen=True):
    """Ends the active session with a companion and begins another, in one step."""

    id: RequestId
    companion: CompanionIdField
    ref: Id


class DeleteSession(ClientFrame, tag="delete_session", frozen=True):
    """Ends the active session with a companion; with `chat`, only if it is that one.

    What was said stays there to be read.
    """

    id: RequestId
    companion: CompanionIdField
    chat: Id | None = None


class UpdateSession(ClientFrame, tag="update_session", frozen=True):
    """Lets another version of the companion answer in a session: the newest, unless told."""

    id: RequestId
    chat: Id
    version: Annotated[int, Meta(ge=1, le=VERSIONS_MAX)] | None = None


class Sessions(ClientFrame, tag="sessions", frozen=True):
    """Asks for the user's sessions: active ones first, then each companion's old ones, by time.

    With `companion`, those with one: the active one, then the old ones, the newest first. `after`
    is the `next` of the last page.
    """

    id: RequestId
    companion: CompanionIdField | None = None
    after: Annotated[str, Meta(min_length=1, max_length=CURSOR_CHARS_MAX)] | None = None
    limit: Limit = 50


AnySessionRequest = (
    Companions
    | CreateSession
    | GetSession
    | RenewSession
    | DeleteSession
    | UpdateSession
    | Sessions
)


class Typing(ClientFrame, tag="typing", frozen=True):
    """Tells the other members that the user is writing. Never stored, never answered."""

    chat: Id
    on: bool


class Watch(ClientFrame, tag="watch", frozen=True):
    """Asks how present users are, now and from now on; those who share no chat are passed over."""

    users: Annotated[list[Id], Meta(min_length=1, max_length=WATCH_MAX)]


class Unwatch(ClientFrame, tag="unwatch", frozen=True):
    """Ends `watch` for these users."""

    users: Annotated[list[Id], Meta(min_length=1, max_length=WATCH_MAX)]


class State(ClientFrame, tag="state", frozen=True):
    """Tells whether the device shows the application (`fg`) or hides it (`bg`)."""

    state: Literal["fg", "bg"]


AnyClientFrame = (
    Hello
    | Auth
    | Send
    | Edit
    | Delete
    | React
    | Mark
    | Sync
    | History
    | Chats
    | OpenDirect
    | CreateChat
    | AnyChange
    | AnyInvitation
    | AnyModeration
    | StopTurn
    | JoinTurn
    | AnySessionRequest
    | Typing
    | Watch
    | Unwatch
    | State
)


# ── server → client ─────────────────────────────────────────────────────────────────────────────


class ServerFrame(msgspec.Struct, tag_field="type", frozen=True, omit_defaults=True):
    """Anything the server sends."""


class Limits(msgspec.Struct, frozen=True):
    """The bounds a client should know."""

    frame_bytes_max: int
    body_chars_max: int
    body_bytes_max: int
    page_max: int
    members_max: int
    sends_in_flight_max: int


class LargeChat(msgspec.Struct, frozen=True):
    """A chat without inboxes and its newest place: its events carry `seq` 0, `cs` is the place."""

    chat: str
    seq: int


class Welcome(ServerFrame, tag="welcome", frozen=True, omit_defaults=False):
    """Answers `hello`. `seq` is the newest event of the inbox in `epoch`."""

    session: str
    user: str
    epoch: str
    seq: int
    heartbeat_ms: int
    limits: Limits
    large: list[LargeChat]


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a message. `thumb`: there is a small picture of it; `width`, `height` are its own.

    `type` is what its owner called it, `size` in bytes.
    """

    id: str
    name: str
    type: str
    size: int
    width: int | None = None
    height: int | None = None
    thumb: bool = False


class Ai(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a companion's message was made: the model, its tokens as counted or estimated, the end.

    `end`: ``done`` as the model wanted; ``length`` at a bound; ``refused`` by the model;
    ``stopped`` by the user; ``broken`` or ``late``: the stream died or fell silent; ``failed``:
    there is no answer, `body` says why in words and `code` in one of the error codes.
    """

    model: str
    end: str = "done"  # a word of the above; newer servers may have others
    tokens_in: int = 0
    tokens_out: int = 0
    code: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a chat, the same in an event, on a history page and as `last` of a chat.

    Most are messages. One of `ENTRY_KINDS` tells of a change instead: an edit, delete or reaction
    of the message at `target`, the role that `user` has from now on, the chat's `name`.
    `muted_until` (seconds since 1970, 0: for ever) is of a `member` who may not write until then;
    `MUTE_OVER` of one who may write again. `banned` is of one who is out and may not come back.
    `rev` is the seq of the last entry that changed this message; a `deleted` one has no body.
    `ai` is of messages that a model made.
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


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a member has read and received a chat."""

    user: str
    read: int = 0
    received: int = 0


class ChatInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chat is. `members` are the first `MEMBERS_SHOWN_MAX` of `count`, by id.

    `roles` has those of them who are more than a member, `muted` those who may not write and until
    when (seconds since 1970, 0: for ever). `blocked`: its two users cannot write to each other.
    `large`: its events carry `seq` 0, and `cs` is the place; in an event, above chat seq `since`.
    `ended`: a session with a companion that is over; it is read, and not written to.
    `invited`: who was asked by this request, and becomes a member by accepting.
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


class CompanionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An AI companion as users see it. `id` is its user id in chats, `version` the newest one."""

    id: str
    name: str
    version: int


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session of the user with a companion, which `ai_version` of it answers.

    Times are milliseconds since 1970; one with a `delete_time` is over, and its chat is only read.
    """

    companion: str
    chat: str
    ai_version: int
    create_time: int
    delete_time: int | None = None


class Event(ServerFrame, tag="event", frozen=True):
    """Something that happened, at place `seq` of the user's inbox.

    `kind` names the filled field: `read`, `chat` (`info`), `hidden`; all others fill `message`,
    and `cs` is then the place in the chat.
    """

    epoch: str
    seq: int
    kind: Literal[
        "message", "edit", "delete", "reaction", "member", "update", "read", "chat", "hidden"
    ]
    chat: str
    cs: int = 0
    message: Message | UnsetType = UNSET
    read: Marks | UnsetType = UNSET
    info: ChatInfo | UnsetType = UNSET
    hidden: list[int] | UnsetType = UNSET


class Signal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """Something of the moment: has no seq, is dropped first."""

    kind: Literal["typing"]
    chat: str
    from_: str = msgspec.field(name="from")
    on: bool


class InvitationSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """The user was invited to a group: ask for `invitations` again."""

    kind: Literal["invitation"]
    chat: str
    from_: str = msgspec.field(name="from")


class PresenceSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """How present a user is. `last_seen` (µs since 1970) of one who is offline, where known."""

    kind: Literal["presence"]
    from_: str = msgspec.field(name="from")
    state: Literal["online", "away", "offline"]
    last_seen: int | UnsetType = UNSET


class AiSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """What a companion says, while it says it: piece `index` of an answer to the message at `seq`.

    `turn` names the answer; another one for the same `seq` is begun anew. Index 0 has no text. The
    last piece has `end`; the message comes as an event.
    """

    kind: Literal["ai.delta"]
    chat: str
    from_: str = msgspec.field(name="from")
    turn: str
    seq: int
    index: int
    text: str
    end: str | UnsetType = UNSET


class Turn(ServerFrame, tag="turn", frozen=True, omit_defaults=False):
    """Answers `join_turn`: `text` is that of the pieces up to `index`; the next ones are signals.

    `turn` is empty where no answer is being made, nor was a short time ago.
    """

    id: int
    chat: str
    turn: str
    seq: int
    index: int
    text: str
    end: str | UnsetType = UNSET


class PostSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """Somebody whom the user follows has posted; `post` is its id."""

    kind: Literal["post"]
    from_: str = msgspec.field(name="from")
    post: str


class Ack(ServerFrame, tag="ack", frozen=True, omit_defaults=False):
    """The entry is committed. `dup`: it already was, under the same `ref`."""

    id: int
    ref: str
    mid: str
    seq: int
    ts: int
    dup: bool
    durability: Literal["hot", "stored"]


class Stored(ServerFrame, tag="stored", frozen=True):
    """All that the user sent to `chat` up to seq `upto` is in the warm tier."""

    chat: str
    upto: int


class Ok(ServerFrame, tag="ok", frozen=True):
    """The request was done. `chat` where it was about one, `session` likewise."""

    id: int
    chat: ChatInfo | None = None
    session: SessionInfo | None = None


class ChatSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the chat list. `top` is the newest seq; `peer` the other side's marks (direct).

    `hidden`, in a snapshot only: what the user deleted for themselves.
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


class EventPage(ServerFrame, tag="page", frozen=True, omit_defaults=False):
    """Answers `sync`."""

    id: int
    events: list[msgspec.Raw]
    cursor: Cursor
    more: bool


class HistoryPage(ServerFrame, tag="page", frozen=True, omit_defaults=False):
    """Answers `history`: messages in rising seq, contiguous, from one tier or a join of two.

    `tier` is the coldest one that was read: ``hot``, ``warm`` or ``cold``. `stored` is the chat seq
    up to which the warm tier has the chat. `marks` are the members' marks, on the newest page of a
    chat of up to 32 members.
    """

    id: int
    chat: str
    messages: list[msgspec.Raw]
    tier: Literal["hot", "warm", "cold"]
    more: bool
    stored: int = 0
    marks: list[Marks] = []


class ChatsPage(ServerFrame, tag="page", frozen=True):
    """Answers `chats`. `next` is the `after` of the next page (opaque), absent on the last."""

    id: int
    chats: list[ChatSummary]
    more: bool
    next: str | None = None


class BlockedUser(msgspec.Struct, frozen=True):
    """A user whom the asking one blocks; `since` in milliseconds since 1970."""

    user: str
    since: int


class BlocksPage(ServerFrame, tag="page", frozen=True):
    """Answers `blocks`."""

    id: int
    blocked: list[BlockedUser]
    more: bool
    next: str | None = None


class InvitationInfo(msgspec.Struct, frozen=True):
    """An invitation to a group. `at` in milliseconds since 1970, `expires_at` in seconds."""

    chat: str
    inviter: str
    at: int
    expires_at: int
    name: str | None = None


class InvitationsPage(ServerFrame, tag="page", frozen=True):
    """Answers `invitations`."""

    id: int
    invitations: list[InvitationInfo]
    more: bool
    next: str | None = None


class CompanionsPage(ServerFrame, tag="page", frozen=True):
    """Answers `companions`."""

    id: int
    companions: list[CompanionInfo]
    more: bool
    next: str | None = None


class SessionsPage(ServerFrame, tag="page", frozen=True):
    """Answers `sessions`. `next` is opaque."""

    id: int
    sessions: list[SessionInfo]
    more: bool
    next: str | None = None


class TooLong(ServerFrame, tag="too_long", frozen=True):
    """The hot tier no longer holds all that was missed: start from this snapshot.

    `large`: the user's large chats, as in `welcome`.
    """

    cursor: Cursor
    chats: list[ChatSummary]
    id: int | None = None
    large: list[LargeChat] = []


class Reset(ServerFrame, tag="reset", frozen=True):
    """The cursor means nothing here (another epoch, or ahead): start from this snapshot.

    `large`: the user's large chats, as in `welcome`.
    """

    cursor: Cursor
    chats: list[ChatSummary]
    id: int | None = None
    large: list[LargeChat] = []


class Error(ServerFrame, tag="error", frozen=True, omit_defaults=False):
    """A request failed. `temporary`: the same request may work after `retry_after_ms`."""

    code: str
    message: str
    temporary: bool
    id: int | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class Bye(ServerFrame, tag="bye", frozen=True, omit_defaults=False):
    """Comes before a close that the server chose."""

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
    | TooLong
    | Reset
    | Error
    | Bye
)
