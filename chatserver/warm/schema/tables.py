"""DynamoDB tables: keys, indexes and attribute names.

Attribute names are defined only here, in `chatserver.warm.schema.directory_attributes` and in
`tables.py` of features. A prefix in a comment, such as "chats:", names the items that have the
attribute.

| table          | keys           | indexes                                 | content           |
|----------------|----------------|-----------------------------------------|-------------------|
| `messages`     | `chatid`, `ts` | `sender`, `receiver` (sparse), `status` | messages          |
|                |                | `files` (sparse)                        |                   |
| `chat_session` | `PK`, `SK`     | `GSI1_chat`                             | AI companions     |
| `social`       | `PK`, `SK`     | none                                    | the social graph  |
| `directory`    | `PK`, `SK`     | `by_member` (inverted keys)             | users, chats      |

Indexes contain only keys, and `expires_at`, by which expired messages are filtered. A write then
costs one unit per index, whatever the body size. Readers get keys from the index and items from the
table, so they never return outdated items. `by_member` contains only keys, so updating a read
marker does not write to it.

`status` has the same partition key as the table, but is a global index: a local one would limit a
chat to 10 GB. `chatserver.warm.schema.provisioning` creates the tables.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from chatserver.config import Warm


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
    BODY_SHA256: Final = "body_sha256"  # SHA-256 (hex) of a body that is stored in S3
    BODY_BYTES: Final = "body_bytes"  # UTF-8 length of a body that is stored in S3
    REPLY_TO: Final = "reply_to"
    STATUS: Final = "status"
    STATUS_TS: Final = "status_ts"  # "<status>#<ts, 20 digits>"
    REV: Final = "rev"  # 1 for an unchanged message; then the seq of its last change
    TARGET: Final = "target"  # entries that change a message: the message's seq
    USER: Final = "user"  # entries about a member: their user id
    ROLE: Final = "role"  # entries about a member: their role
    NAME: Final = "name"  # entries about the chat
    MUTED_UNTIL: Final = "muted_until"  # end of a member's mute, s since 1970; 0 means forever
    BANNED: Final = "banned"  # entries about a member
    EDITED_TS: Final = "edited_ts"  # ts of the edit that set the body
    EDITED_SEQ: Final = "edited_seq"  # seq of the edit that set the body
    REACTIONS: Final = "reactions"  # map: user → emoji
    DELETED: Final = "deleted"  # true if the message is deleted; its item is kept without the body
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970: when the message expires
    TTL: Final = "ttl"  # seconds since 1970: when DynamoDB may remove the item
    ATTACHMENTS: Final = "attachments"  # JSON, as sent to clients
    FILES_OF: Final = "files_of"  # the chat id, on messages with attachments
    AI: Final = "ai"  # JSON: the model, the outcome and the token counts of an AI response
    AUTHOR: Final = "author"  # removal markers: the message's sender, not in any index
    COPY: Final = "copy"  # legal hold copies: the message as JSON
    ENDS: Final = "ends"  # removal markers: the message's `expires_at`, not read by TTL
    SUM: Final = "sum"  # checksum of the message, see `chatserver.warm.messages.checksums`
    RESTORED: Final = "restored"  # restored items: end of the restore, seconds since 1970
    SHREDDED: Final = "shredded"  # the body cannot be decrypted: its data key was deleted
    PINNED: Final = "pinned"  # the message is pinned; see `chatserver.features.pins.warm`


class SessionField:
    """Attributes of `chat_session`."""

    PK: Final = "PK"
    SK: Final = "SK"
    GSI1_PK: Final = "GSI1PK"  # the chat id
    CHAT: Final = "chat_id"
    VERSION: Final = "ai_version"  # version of the companion
    CREATED: Final = "create_time"  # milliseconds since 1970
    DELETED: Final = "delete_time"  # end of the session, ms since 1970; absent while it is active
    # Memory items
    ENTRIES: Final = "entries"  # JSON: what the companion remembers
    CURSORS: Final = "cursors"  # JSON: the last message read from each session
    SINCE: Final = "since"  # milliseconds since 1970: earlier messages are not remembered
    OFF: Final = "off"  # true: the user has turned memory off
    REV: Final = "rev"  # 1, 2, 3 …: each write requires the previous revision
    TTL: Final = "expires_at"  # seconds since 1970


class SocialField:
    """Attributes of `social`; see `chatserver.features.social.warm.social_items`."""

    PK: Final = "PK"
    SK: Final = "SK"
    NAME: Final = "name"
    ABOUT: Final = "about"
    AVATAR: Final = "avatar"  # key of an attachment
    FOLLOWERS: Final = "follower#"  # number of followers
    FOLLOWING: Final = "following#"  # number of followed users
    POSTS: Final = "post#"  # number of posts
    SINCE: Final = "since"  # start of following, milliseconds since 1970
    CONTENT: Final = "content"
    IMAGE: Final = "image"  # key of an attachment
    CREATED: Final = "created"  # milliseconds since 1970
    EDITED: Final = "edited"  # posts: last edit, milliseconds since 1970; absent if not edited
    AT: Final = "at"  # likes: milliseconds since 1970
    N: Final = "n"  # posts: number of likes
    BATCH: Final = "batch"  # counts: id of the newest counter queue entry that is included
    TTL: Final = "ttl"  # timeline entries: expiry, seconds since 1970
    REF: Final = "ref"  # favorites: the saved post or message
    PLACE: Final = "place"  # favorite references: sort key of the favorite


class DirectoryField:
    """Attributes of `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    NAME: Final = "name"
    CREATED: Final = "created"  # milliseconds since 1970
    KIND: Final = "kind"  # chats: direct, group or companion
    STATE: Final = "state"  # chats: forming or ready
    ORIGIN: Final = "origin"  # chats: digest of the creation request
    VERSION: Final = "version"  # chats: version of membership and settings
    TOPIC: Final = "topic"  # groups: topic
    PICTURE: Final = "picture"  # groups: id of a file
    JOINING: Final = "joining"  # chats: who can join (invited or open)
    HISTORY: Final = "history"  # chats: from where new members can read (joined or all)
    MEMBERS: Final = "members"  # chats: number of members
    USERS: Final = "users"  # direct chats: both users
    CHANGE: Final = "change"  # chats: the last change, until it is applied in Redis and delivered
    UNSTORED: Final = "unstored"  # chats: changes whose entries may not be in `messages` yet
    DUE_TS: Final = "due_ts"  # chats: archiving is due when messages with this ts are old enough
    LARGE: Final = "large"  # chats: the chat version at which it became large, or 0
    ROLE: Final = "role"
    JOINED: Final = "joined"  # members: chat seq at which the user joined
    READ: Final = "read"  # members: chat seq up to which the user has read
    RECEIVED: Final = "received"  # members: chat seq up to which the user has received messages
    HIDDEN: Final = "hidden"  # seqs of messages that the member has deleted for themselves
    MUTED_UNTIL: Final = "muted_until"  # members: end of the mute, s since 1970; 0 means forever
    PERIODS: Final = "periods"  # members: earlier membership periods as chat seqs, "3-10,20-31"
    LEFT: Final = "left"  # former members: chat seq of the entry that ended the membership
    MID: Final = "mid"  # former members: message id of the entry that ended the membership
    STORED: Final = "stored"  # former members: the chat's last seq in DynamoDB when they left
    SLOW_S: Final = "slow_s"  # chats: minimum seconds between two messages of a member (slow mode)
    RETENTION_S: Final = "retention_s"  # chats: message lifetime in seconds
    BLOCKED: Final = "blocked"  # direct chats: which of the users block the other
    REASON: Final = "reason"  # reports and legal holds: the reason given
    AUTHOR: Final = "author"  # bans and legal holds: the user who added it
    RESOLVED_BY: Final = "resolved_by"  # reports: user who resolved it
    QUIET: Final = "quiet"  # members: push notifications are muted until this time (ms)
    EXPIRES_AT: Final = "expires_at"  # items with TTL: expiry, seconds since 1970
    ABOUT: Final = "about"  # users: their own description
    BANNED: Final = "banned"  # users: time of the ban, ms since 1970; absent if not banned
    # Users: tokens that belong to no login are invalid if issued up to this time (s since 1970).
    BEFORE: Final = "before"
    HASH: Final = "hash"  # passwords: argon2id with its parameters
    CHANGED: Final = "changed"  # passwords: last change, milliseconds since 1970
    SEED: Final = "seed"  # logins: seed of the refresh tokens, base64url
    GENERATION: Final = "generation"  # logins: number of the newest refresh token
    ROTATED: Final = "rotated"  # logins: time of the newest refresh token, milliseconds since 1970
    SEEN: Final = "seen"  # logins and keys: last use, milliseconds since 1970
    # When a login, key or companion ended or a chat became read-only: milliseconds since 1970.
    ENDED: Final = "ended"
    DIGEST: Final = "digest"  # digest of a key's secret
    OLD_DIGEST: Final = "old_digest"  # API keys: digest of the previous secret
    OLD_UNTIL: Final = "old_until"  # API keys: expiry of the previous secret, seconds since 1970
    SCOPES: Final = "scopes"  # API keys: what the key may do
    ERASED: Final = "erased"  # erased users: time of the erasure, milliseconds since 1970
    RECEIPT: Final = "receipt"  # erased users: the erasure job
    # Users: false until a login ends or a block in either direction is added. Missing: unknown.
    RESTRICTED: Final = "restricted"
    TEXT: Final = "text"  # drafts and summaries; encrypted
    FILE_NAME: Final = "file_name"  # files: encrypted, unlike other names in this table
    WORDS: Final = "words"  # users who can be found by name: their search words


class SegmentField:
    """Attributes of archive items, in `directory`."""

    FIRST: Final = "first"  # first chat seq
    LAST: Final = "last"  # last chat seq
    FIRST_TS: Final = "first_ts"  # ts of the first entry, microseconds since 1970
    LAST_TS: Final = "last_ts"  # ts of the last entry, microseconds since 1970
    RAW_BYTES: Final = "raw_bytes"  # size of the JSON lines before compression
    STORED_BYTES: Final = "stored_bytes"  # size of the object
    SHA256: Final = "sha256"  # SHA-256 of the object, hex
    TAG: Final = "tag"  # suffix of the object's key
    IS_DEAD: Final = "dead"  # orphans: true if they can no longer become a segment
    AT: Final = "at"  # chats whose archived entries changed: last change, milliseconds since 1970
    UNTIL: Final = "until"  # restored ranges: end of the restore, seconds since 1970
    DONE: Final = "done"  # restored ranges: last seq restored so far
    IS_ENDING: Final = "ending"  # restored ranges: true while their items are being removed


class UserPositionField:
    """Attributes of users' archive positions, in `directory`."""

    SENT_TS: Final = "sent_ts"  # microseconds since 1970
    RECEIVED_TS: Final = "received_ts"  # microseconds since 1970


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """The key attributes of a table or index. `sort` is None if there is no sort key."""

    partition: str
    sort: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The attribute names, partition key first."""
        return (self.partition,) if self.sort is None else (self.partition, self.sort)


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index. It projects its key, the table's key and `includes`.

    `since` is the number of the migration that adds the index, or 0 if the first schema has it.
    """

    name: str
    key: Key
    includes: tuple[str, ...] = ()
    since: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class TableSchema:
    """A table. `numbers` are the key attributes of type N; all other key attributes have type S."""

    name: str
    key: Key
    indexes: tuple[Index, ...] = ()
    numbers: frozenset[str] = frozenset()
    expiry: str | None = None
    expiry_before: str | None = None  # previous TTL attribute, if a migration changes it
    is_streamed: bool = False

    def get_type(self, attribute: str) -> Literal["S", "N"]:
        return "N" if attribute in self.numbers else "S"

    def name_in(self, settings: Warm) -> str:
        """Return the table's name with the configured prefix."""
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
    "files", Key(MessageField.FILES_OF, MessageField.TS), (MessageField.EXPIRES_AT,)
)
SESSION_CHAT_INDEX: Final = Index("GSI1_chat", Key(SessionField.GSI1_PK, None))
MEMBER_INDEX: Final = Index("by_member", Key(DirectoryField.SK, DirectoryField.PK))

MESSAGES: Final = TableSchema(
    "messages",
    Key(MessageField.CHAT, MessageField.TS),
    (SENDER_INDEX, RECEIVER_INDEX, STATUS_INDEX, FILES_INDEX),
    numbers=frozenset({MessageField.TS}),
    expiry=MessageField.TTL,
    is_streamed=True,
)
CHAT_SESSION: Final = TableSchema(
    "chat_session",
    Key(SessionField.PK, SessionField.SK),
    (SESSION_CHAT_INDEX,),
    expiry=SessionField.TTL,
)
SOCIAL: Final = TableSchema("social", Key(SocialField.PK, SocialField.SK), expiry=SocialField.TTL)
DIRECTORY: Final = TableSchema(
    "directory",
    Key(DirectoryField.PK, DirectoryField.SK),
    (MEMBER_INDEX,),
    expiry=DirectoryField.EXPIRES_AT,
)
TABLES: Final = (MESSAGES, CHAT_SESSION, SOCIAL, DIRECTORY)
