"""Records in table `directory` and their item formats.

| record         | `PK`       | `SK`          | attributes                                        |
|----------------|------------|---------------|---------------------------------------------------|
| `User`         | `u#<user>` | `u#<user>`    | `created name? about? banned? before? erased?     |
|                |            |               | receipt? restricted? words?`                      |
| `StoredChat`   | `c#<chat>` | `c#<chat>`    | `kind name? version created state origin members  |
|                |            |               | users? joining? history? change? unstored? large? |
|                |            |               | topic? picture?`                                  |
| `StoredMember` | `c#<chat>` | `m#<user>`    | `role joined read received hidden? quiet?         |
|                |            |               | muted_until? periods?`                            |
| `FormerMember` | `u#<user>` | `left#<chat>` | `joined left mid stored hidden? quiet?            |
|                |            |               | muted_until? periods?`                            |

Ids contain no ``#``, so no two records share a key. Users and chats repeat their `PK` as `SK`:
index `by_member` inverts the keys, and a constant `SK` would put them all into one index partition.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from chatserver.domain.membership_periods import (
    FormerMember,
    Period,
    Periods,
    format_periods,
    parse_periods,
)
from chatserver.domain.membership_rules import ChatKind, HistoryFrom, Joining, Role
from chatserver.errors import CorruptData
from chatserver.warm.dynamo.client import Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Attributes, encode_item
from chatserver.warm.dynamo.item_attributes import (
    find_number,
    find_text,
    format_key,
    get_text,
)
from chatserver.warm.schema.tables import DirectoryField as Field

FORMING = "forming"  # the member items are being written; to readers, the chat does not exist yet
READY = "ready"

MEMBER_PREFIX = "m#"
LEFT_PREFIX = "left#"  # a user's item for a chat that they have left
AFTER_MEMBERS = "m$"  # upper bound of all member keys, because '$' sorts right after '#'


def user_key(user: str) -> str:
    return f"u#{user}"


def chat_key(chat: str) -> str:
    """Return the partition key of a chat, which is also the sort key of its `StoredChat` item."""
    return f"c#{chat}"


def member_key(user: str) -> str:
    """Return the sort key of a membership, which is its partition key in `by_member`."""
    return f"{MEMBER_PREFIX}{user}"


def row_key(partition: str, sort: str) -> Item:
    return {Field.PK: {"S": partition}, Field.SK: {"S": sort}}


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A registered user."""

    user: str
    name: str | None
    created_ms: int
    about: str | None = None
    banned_ms: int | None = None
    before: int = 0  # tokens that belong to no login are invalid if issued up to this time (s)
    erased_ms: int | None = None  # the user is erased; the item reserves the id
    is_restricted: bool = False  # there may be ended logins or blocks; see `restriction_flag`
    words: tuple[str, ...] = ()  # words that find the user in a search; see feature `accounts`


USER: Final = Codec(
    User,
    "u#{user}",
    "u#{user}",
    name=Field.NAME,
    created_ms=Field.CREATED,
    about=Field.ABOUT,
    banned_ms=Field.BANNED,
    before=StoredField(Field.BEFORE, absent=0),
    erased_ms=Field.ERASED,
    is_restricted=StoredField(Field.RESTRICTED, absent=True),
    words=StoredField(Field.WORDS, absent=()),
)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredChat:
    """A chat. `version` counts the changes to its membership and settings, starting at 1.

    `change` is the last change, until it is applied in Redis and delivered; see
    `chatserver.service.membership.group_membership`. `unstored` contains the latest changes whose
    entries may not have been stored yet. `count` is the number of members; items written by the
    first releases lack it. `large` is the version at which the chat became a large chat (without
    inboxes), or 0. `users` are the two users of a direct chat. A user who has not opened the chat
    has no `StoredMember` item until the first message.
    """

    chat: str
    kind: ChatKind
    name: str | None
    version: int
    created_ms: int
    joining: Joining = "invited"
    history: HistoryFrom = "joined"
    change: str | None = None
    unstored: str | None = None
    large: int = 0
    count: int | None = dataclasses.field(default=None, compare=False)
    slow_s: int = 0
    retention_s: int = 0  # lifetime of the chat's messages (s); 0: unlimited
    blockers: frozenset[str] = frozenset()  # direct chats: which of the users block the other
    ended_ms: int | None = None  # companion chats: read-only since this time
    topic: str | None = None
    picture: str | None = None  # id of a file
    users: tuple[str, ...] = ()


CHAT: Final = Codec(
    StoredChat,
    "c#{chat}",
    "c#{chat}",
    kind=Field.KIND,
    name=Field.NAME,
    version=Field.VERSION,
    created_ms=Field.CREATED,
    joining=StoredField(Field.JOINING, absent="invited"),
    history=StoredField(Field.HISTORY, absent="joined"),
    change=Field.CHANGE,
    unstored=Field.UNSTORED,
    large=StoredField(Field.LARGE, absent=0),
    count=Field.MEMBERS,
    slow_s=StoredField(Field.SLOW_S, absent=0),
    retention_s=StoredField(Field.RETENTION_S, absent=0),
    blockers=StoredField(Field.BLOCKED, absent=frozenset()),
    ended_ms=Field.ENDED,
    topic=StoredField(Field.TOPIC, absent=None, load=lambda text: text or None),
    picture=StoredField(Field.PICTURE, absent=None, load=lambda file: file or None),
    users=StoredField(
        Field.USERS, absent=(), load=lambda users: tuple(sorted(users)), dump=frozenset
    ),
)


def encode_chat(chat: StoredChat, state: str, origin: str) -> Item:
    """Encode a chat as an item with `state` and the creation request digest `origin`."""
    return CHAT.encode(chat) | {Field.STATE: {"S": state}, Field.ORIGIN: {"S": origin}}


def is_ready(item: Item) -> bool:
    """Return whether a chat is complete; False while it is being created."""
    return get_text(item, Field.STATE) == READY


def get_origin(item: Item) -> str:
    """Return the digest of a chat's creation request; see `describe_origin`."""
    return get_text(item, Field.ORIGIN)


def describe_origin(kind: ChatKind, name: str | None, roles: Mapping[str, Role]) -> str:
    """Return a digest of a chat's creation request. A retry of the request has the same digest."""
    parts = [kind, "-" if name is None else f"={name}"]
    parts += [f"{user}#{roles[user]}" for user in sorted(roles)]
    # A name may contain any character, so each part is preceded by its length.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class StoredMember:
    """A member of a chat. `joined`, `read` and `received` are chat seqs.

    `hidden` contains the seqs of messages that the user has deleted for themselves. `periods`
    contains the earlier membership periods.
    """

    chat: str
    user: str
    role: Role
    joined: int = 0
    read: int = 0
    received: int = 0
    hidden: tuple[int, ...] = ()
    muted_until: int | None = None  # end of the mute (Unix s), 0: forever; None: not muted
    quiet_until: int | None = None  # ms since 1970: push notifications are muted until then
    periods: Periods = ()


def _load_seqs(seqs: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted(map(int, seqs)))


MEMBER: Final = Codec(
    StoredMember,
    "c#{chat}",
    MEMBER_PREFIX + "{user}",
    role=Field.ROLE,
    joined=Field.JOINED,
    read=Field.READ,
    received=Field.RECEIVED,
    hidden=StoredField(Field.HIDDEN, absent=(), load=_load_seqs, dump=frozenset),
    muted_until=Field.MUTED_UNTIL,
    quiet_until=Field.QUIET,
    periods=StoredField(Field.PERIODS, absent=(), load=parse_periods, dump=format_periods),
)


def left_key(chat: str, user: str) -> Item:
    """Return the key of a `FormerMember` item."""
    return row_key(user_key(user), LEFT_PREFIX + chat)


def encode_former(chat: str, user: str, former: FormerMember) -> Item:
    kept: Attributes = {
        Field.JOINED: former.last.first,
        Field.LEFT: former.last.last,
        Field.MID: former.mid,
        Field.STORED: former.stored,
        Field.HIDDEN: frozenset(former.hidden) or None,
        Field.QUIET: former.quiet_until,
        Field.MUTED_UNTIL: former.muted_until,
        Field.PERIODS: format_periods(former.periods) or None,
    }
    return left_key(chat, user) | encode_item(kept)


def decode_former(item: Item) -> tuple[str, FormerMember]:
    """Decode a former membership; return `(user, former)`. Raises CorruptData."""
    try:
        former = FormerMember(
            last=Period(find_number(item, Field.JOINED) or 1, find_number(item, Field.LEFT) or 0),
            mid=find_text(item, Field.MID) or "",
            stored=find_number(item, Field.STORED) or 0,
            periods=parse_periods(find_text(item, Field.PERIODS) or ""),
            hidden=_load_seqs(item.get(Field.HIDDEN, {"NS": ()})["NS"]),
            quiet_until=find_number(item, Field.QUIET),
            muted_until=find_number(item, Field.MUTED_UNTIL),
        )
    except ValueError as exc:
        raise CorruptData(f"table directory: {format_key(item)} has invalid periods") from exc
    return get_text(item, Field.PK).removeprefix("u#"), former


def with_unlisted(chat: StoredChat, members: list[StoredMember]) -> list[StoredMember]:
    """Return `members`, plus the users in `chat.users` without an item, sorted by id."""
    listed = {member.user for member in members}
    unlisted = [
        StoredMember(chat.chat, user, "member") for user in chat.users if user not in listed
    ]
    return sorted([*members, *unlisted], key=lambda member: member.user) if unlisted else members
