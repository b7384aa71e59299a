"""Frames of the core that clients send. `chatserver.requests` declares how each is handled."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chatserver.domain.membership_rules import HistoryFrom, Joining, Role
from chatserver.protocol.frames.fields import (
    KIND_PATTERN,
    PICTURE_PATTERN,
    ChatSeq,
    Cursor,
    Id,
    Limit,
    RequestId,
    Retention,
    SeqField,
)
from chatserver.protocol.frames.limits import (
    ATTACHMENTS_MAX,
    EXPIRES_S_MAX,
    INT_MAX,
    INVITE_MAX,
    LARGE_MAX,
    MEMBERS_MAX,
    MUTE_S_MAX,
    REASON_CHARS_MAX,
    SLOW_S_MAX,
    TOKEN_CHARS_MAX,
    UNSTORED_MAX,
    WATCH_MAX,
)


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
    target_ref: Id | None = None


class Delete(ClientFrame, tag="delete", frozen=True, rename={"scope": "for"}):
    """Deletes a message for everyone, or only for the user."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    scope: Literal["all", "me"] = "all"
    target_ref: Id | None = None


class React(ClientFrame, tag="react", frozen=True):
    """Sets the user's reaction to a message; an empty `emoji` removes it."""

    id: RequestId
    chat: Id
    seq: ChatSeq
    ref: Id
    emoji: str
    target_ref: Id | None = None


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
