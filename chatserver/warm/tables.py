"""The four tables of DynamoDB, and the only place, with `fields`, that spells attribute names.

| table          | keys           | indexes                                 | content           |
|----------------|----------------|-----------------------------------------|-------------------|
| `messages`     | `chatid`, `ts` | `sender`, `receiver` (sparse), `status` | one row a message |
|                |                | `files` (sparse)                        |                   |
| `chat_session` | `PK`, `SK`     | `GSI1_chat`                             | AI companions     |
| `social`       | `PK`, `SK`     | none                                    | the social graph  |
| `directory`    | `PK`, `SK`     | `by_member` (the keys turned round)     | users, chats, who |

Projections. Every message is written once into each index and seldom read through one, so the
indexes hold keys and the expiry alone: a write costs one unit an index whatever the body's size,
where a projected body would cost its size again three times. Who reads through an index takes the
keys from it and the items from the table, which also means that what he sees is never the index's
older copy. The expiry is there so that rows which TTL has yet to remove are skipped inside the
index, not fetched first. `by_member` holds keys alone, so moving a read mark does not touch it.

`status` has the table's own partition key and is a global index all the same: a local one would
bound a chat to 10 GB.

Definitions alone: `chatserver.warm.provisioning` makes the tables.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from chatserver.config import Warm
from chatserver.warm import versions


class MessageField:
    """Attributes of `messages`."""

    CHAT: Final = "chatid"
    TS: Final = "ts"  # microseconds since 1970; rises with seq within a chat
    SEQ: Final = "seq"
    MID: Final = "mid"
    REF: Final = "ref"
    SENDER: Final = "sender_id"
    RECEIVER: Final = "receiver_id"  # direct chats only
    KIND: Final = "kind"
    BODY: Final = "body"
    BODY_SHA256: Final = "body_sha256"  # hex: the body is an object in the bucket
    BODY_BYTES: Final = "body_bytes"  # of such a body, in UTF-8
    REPLY_TO: Final = "reply_to"
    STATUS: Final = "status"
    STATUS_TS: Final = "status_ts"  # "<status>#<ts, 20 digits>"
    REV: Final = "rev"  # 1 as sent, then the seq of the entry that changed it last
    TARGET: Final = "target"  # of an entry that changes a message: the message's seq
    USER: Final = "user"  # of an entry about a member
    ROLE: Final = "role"  # of an entry about a member
    NAME: Final = "name"  # of an entry about the chat
    MUTED_UNTIL: Final = "muted_until"  # of an entry about a member: s since 1970, 0 for ever
    BANNED: Final = "banned"  # of an entry about a member
    EDITED_TS: Final = "edited_ts"  # of the edit that gave it its body
    EDITED_SEQ: Final = "edited_seq"  # of the edit that gave it its body
    REACTIONS: Final = "reactions"  # user to emoji
    DELETED: Final = "deleted"  # its text is gone, its place stays
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970: the end of its text
    TTL: Final = "ttl"  # seconds since 1970: DynamoDB may remove the item; since schema 5
    ATTACHMENTS: Final = "attachments"  # JSON: the files, as readers get them
    FILES_OF: Final = "files_of"  # the chat again, of a message that has files; since schema 1
    AI: Final = "ai"  # JSON: the model that made it, how it ended, and its tokens
    AUTHOR: Final = "author"  # of a marker: its message's sender, and in no index
    COPY: Final = "copy"  # of what a legal hold keeps: the message, JSON
    ENDS: Final = "ends"  # of a marker: its message's `expires_at`, and no TTL
    SUM: Final = "sum"  # checksum of what it says, see `chatserver.warm.checksums`
    RESTORED: Final = "restored"  # until then it lies over its segment; seconds since 1970


class SessionField:
    """Attributes of `chat_session`."""

    PK: Final = "PK"
    SK: Final = "SK"
    GSI1_PK: Final = "GSI1PK"  # the chat id
    CHAT: Final = "chat_id"
    VERSION: Final = "ai_version"  # of the companion
    CREATED: Final = "create_time"  # milliseconds since 1970
    DELETED: Final = "delete_time"  # milliseconds since 1970; absent while the session is active


class SocialField:
    """Attributes of `social`; see `chatserver.warm.social`."""

    PK: Final = "PK"
    SK: Final = "SK"
    NAME: Final = "name"
    ABOUT: Final = "about"
    AVATAR: Final = "avatar"  # key of an attachment
    FOLLOWERS: Final = "follower#"  # how many follow the user
    FOLLOWING: Final = "following#"  # how many the user follows
    POSTS: Final = "post#"  # how many posts the user has
    SINCE: Final = "since"  # of an edge: milliseconds since 1970
    CONTENT: Final = "content"
    IMAGE: Final = "image"  # key of an attachment
    CREATED: Final = "created"  # milliseconds since 1970
    EDITED: Final = "edited"  # milliseconds since 1970; absent of a post as it was made
    AT: Final = "at"  # of a like: milliseconds since 1970
    N: Final = "n"  # of a post: how many like it
    BATCH: Final = "batch"  # of a count: the newest like that is in it
    TTL: Final = "ttl"  # of a line of a timeline: seconds since 1970


class DirectoryField:
    """Attributes of `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    NAME: Final = "name"
    CREATED: Final = "created"  # milliseconds since 1970
    KIND: Final = "kind"  # of a chat: direct, group or companion
    STATE: Final = "state"  # of a chat: forming or ready
    ORIGIN: Final = "origin"  # of a chat: digest of what it was created as
    VERSION: Final = "version"  # of a chat's membership and settings
    JOINING: Final = "joining"  # of a chat: invited or open
    HISTORY: Final = "history"  # of a chat: joined or all
    MEMBERS: Final = "members"  # of a chat: how many there are
    USERS: Final = "users"  # of a direct chat: both
    CHANGE: Final = "change"  # of a chat: the last change, until the hot tier has it, too
    UNSTORED: Final = "unstored"  # of a chat: changes of which entries may not be stored
    DUE_TS: Final = "due_ts"  # of a chat: the archive looks when messages of then are old enough
    LARGE: Final = "large"  # of a chat: the version with which it became a large one, or 0
    ROLE: Final = "role"
    JOINED: Final = "joined"  # chat seq
    READ: Final = "read"  # chat seq
    RECEIVED: Final = "received"  # chat seq
    HIDDEN: Final = "hidden"  # seqs that the member deleted for himself
    MUTED_UNTIL: Final = "muted_until"  # of a member: seconds since 1970, 0 for ever
    PERIODS: Final = "periods"  # of a member: earlier periods of membership, "3-10,20-31"
    LEFT: Final = "left"  # of a former member: chat seq of the entry that says so
    MID: Final = "mid"  # of that entry
    STORED: Final = "stored"  # of a former member: what of the chat was stored then
    SLOW_S: Final = "slow_s"  # of a chat: slow mode
    RETENTION_S: Final = "retention_s"  # of a chat: its messages end so long after they were sent
    BLOCKED: Final = "blocked"  # of a direct chat: which of its users block the other
    REASON: Final = "reason"  # of a report
    AUTHOR: Final = "author"  # of a ban: who banned
    RESOLVED_BY: Final = "resolved_by"  # of a report
    QUIET: Final = "quiet"  # of a member: wants no pushes of the chat until then (ms)
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970, of rows that end by themselves
    ABOUT: Final = "about"  # of a user, by himself
    BANNED: Final = "banned"  # of a user: milliseconds since 1970; absent if not
    BEFORE: Final = "before"  # of a user: tokens of up to here hold no more, seconds since 1970
    HASH: Final = "hash"  # of a password, argon2id with its parameters
    CHANGED: Final = "changed"  # of a password: milliseconds since 1970
    SEED: Final = "seed"  # of a login: what its refresh tokens are made with, base64url
    GENERATION: Final = "generation"  # of a login: number of its newest refresh token
    ROTATED: Final = "rotated"  # of a login: when that one was made, milliseconds since 1970
    SEEN: Final = "seen"  # of a login or a key: last used, milliseconds since 1970
    # Of a login, a key, a companion, a chat that is only read now: milliseconds since 1970.
    ENDED: Final = "ended"
    DIGEST: Final = "digest"  # of the secret of a key
    OLD_DIGEST: Final = "old_digest"  # of the secret that it had before
    OLD_UNTIL: Final = "old_until"  # how long that one holds, seconds since 1970
    SCOPES: Final = "scopes"  # of a key
    ERASED: Final = "erased"  # of a user who is gone for good: milliseconds since 1970
    RECEIPT: Final = "receipt"  # of such a user: the job that erases


class PushField:
    """Attributes of push subscriptions, in `directory`."""

    USER: Final = "user"  # of the row that says whose a subscription is
    KIND: Final = "kind"  # web, fcm or apns
    TARGET: Final = "target"  # endpoint of a browser, token of an application
    P256DH: Final = "p256dh"  # the browser's public key
    AUTH: Final = "auth"  # the browser's secret
    DEVICE: Final = "device"  # that registered it
    CREATED: Final = "created"  # milliseconds since 1970, of the newest registration
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970


class JobField:
    """Attributes of exports and erasures, in `directory`."""

    KIND: Final = "kind"  # export or erasure
    USER: Final = "user"
    STATE: Final = "state"  # waiting, running, ready, done or failed
    CREATED: Final = "created"  # milliseconds since 1970
    CHANGED: Final = "changed"  # milliseconds since 1970
    PROGRESS: Final = "progress"  # percent
    STEPS: Final = "steps"  # of an erasure, JSON: what was done where
    WHY: Final = "why"  # it failed, or waits
    SIZE: Final = "size"  # bytes, of an export
    TRIES: Final = "tries"  # how often a worker took it
    HOLDER: Final = "holder"  # the worker that has it
    HELD_UNTIL: Final = "held_until"  # nobody else takes it before, milliseconds since 1970
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970
    JOB: Final = "job"  # of a user: the newest export
    DAY: Final = "day"  # on which it was asked for, since 1970
    EXPORTS: Final = "exports"  # how many were asked for on that day


class SegmentField:
    """Attributes of the archive's rows, in `directory`."""

    FIRST: Final = "first"  # seq
    LAST: Final = "last"  # seq
    FIRST_TS: Final = "first_ts"  # microseconds since 1970
    LAST_TS: Final = "last_ts"  # microseconds since 1970
    RAW_BYTES: Final = "raw_bytes"  # unpacked
    STORED_BYTES: Final = "stored_bytes"  # of the object
    SHA256: Final = "sha256"  # of the object, hex
    TAG: Final = "tag"  # of the object's key
    IS_DEAD: Final = "dead"  # of an object on its way: no segment may be made of it any more
    AT: Final = "at"  # of a chat with late changes: of the last one, milliseconds since 1970
    UNTIL: Final = "until"  # of what was restored: it leaves the warm tier then, s since 1970
    DONE: Final = "done"  # of what is restored: up to which seq it is
    IS_ENDING: Final = "ending"  # of what was restored: it is being taken away


class FileField:
    """Attributes of `directory` that files have, and what counts a user's uploads."""

    OWNER: Final = "owner"
    CHAT: Final = "chat"
    NAME: Final = "name"
    TYPE: Final = "type"
    SIZE: Final = "size"  # bytes
    SHA256: Final = "sha256"  # hex
    CREATED: Final = "created"  # milliseconds since 1970
    DUE: Final = "due"  # seconds since 1970: when it is to be removed
    STATE: Final = "state"  # waiting or ready
    SEQS: Final = "seqs"  # of the messages that have it
    WIDTH: Final = "width"
    HEIGHT: Final = "height"
    THUMB: Final = "thumb"  # there is one
    LOOKED_AT: Final = "looked_at"  # there will be no thumbnail if there is none
    REV: Final = "rev"  # counts the writes
    UPLOADS: Final = "uploads"  # of a user: how many files no message has
    BYTES: Final = "bytes"  # of a user: how large they are together


class CompanionField:
    """Attributes of companions' versions, in `directory`."""

    NAME: Final = "name"
    VERSION: Final = "version"
    CREATED: Final = "created"  # milliseconds since 1970
    PROMPT: Final = "prompt"
    PROVIDER: Final = "provider"  # bedrock, openai or scripted
    MODEL: Final = "model"
    CONTEXT_TOKENS: Final = "context_tokens"
    ANSWER_TOKENS: Final = "answer_tokens"


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """The attributes that find an item. `sort` is absent in an index of one attribute."""

    partition: str
    sort: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names, partition first."""
        return (self.partition,) if self.sort is None else (self.partition, self.sort)


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index: its own key, the table's key and `includes`, nothing else.

    `since`: the migration that gives it to tables which were made without it.
    """

    name: str
    key: Key
    includes: tuple[str, ...] = ()
    since: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table. `numbers` are the key attributes of type N; all others are S."""

    name: str
    key: Key
    indexes: tuple[Index, ...] = ()
    numbers: frozenset[str] = frozenset()
    expiry: str | None = None
    expiry_before: str | None = None  # what TTL reads until a migration has been
    is_streamed: bool = False

    def type_of(self, attribute: str) -> Literal["S", "N"]:
        """Return the type of a key attribute."""
        return "N" if attribute in self.numbers else "S"

    def name_in(self, settings: Warm) -> str:
        """Return the table's name with the prefix of this installation."""
        return settings.table_prefix + self.name


SENDER_INDEX: Final = Index(
    "sender", Key(MessageField.SENDER, MessageField.TS), (MessageField.EXPIRES_AT,)
)
RECEIVER_INDEX: Final = Index(
    "receiver", Key(MessageField.RECEIVER, MessageField.TS), (MessageField.EXPIRES_AT,)
)
STATUS_INDEX: Final = Index(
    "status", Key(MessageField.CHAT, MessageField.STATUS_TS), (MessageField.EXPIRES_AT,)
)
FILES_INDEX: Final = Index(
    "files",
    Key(MessageField.FILES_OF, MessageField.TS),
    (MessageField.EXPIRES_AT,),
    since=versions.FILES,
)
SESSION_CHAT_INDEX: Final = Index("GSI1_chat", Key(SessionField.GSI1_PK, None))
MEMBER_INDEX: Final = Index("by_member", Key(DirectoryField.SK, DirectoryField.PK))

MESSAGES: Final = Table(
    "messages",
    Key(MessageField.CHAT, MessageField.TS),
    (SENDER_INDEX, RECEIVER_INDEX, STATUS_INDEX, FILES_INDEX),
    numbers=frozenset({MessageField.TS}),
    expiry=MessageField.TTL,
    expiry_before=MessageField.EXPIRES_AT,
    is_streamed=True,
)
CHAT_SESSION: Final = Table(
    "chat_session", Key(SessionField.PK, SessionField.SK), (SESSION_CHAT_INDEX,)
)
SOCIAL: Final = Table("social", Key(SocialField.PK, SocialField.SK), expiry=SocialField.TTL)
DIRECTORY: Final = Table(
    "directory",
    Key(DirectoryField.PK, DirectoryField.SK),
    (MEMBER_INDEX,),
    expiry=DirectoryField.EXPIRES_AT,
)
TABLES: Final = (MESSAGES, CHAT_SESSION, SOCIAL, DIRECTORY)
