"""Records in table `directory` and their item formats.

| record   | `PK`        | `SK`         | attributes                                    |
|----------|-------------|--------------|-----------------------------------------------|
| `User`   | `u#<user>`  | `u#<user>`   | `created name? about? banned? before?         |
|          |             |              | erased? receipt? restricted? words?`          |
| `Chat`   | `c#<chat>`  | `c#<chat>`   | `kind name? version created state origin      |
|          |             |              | members users? joining? history? change?      |
|          |             |              | unstored? large? topic? picture?`             |
| `Member` | `c#<chat>`  | `m#<user>`   | `role joined read received hidden?            |
|          |             |              | quiet? muted_until? periods?`                 |
| `Former- | `u#<user>`  | `left#<chat>`| `joined left mid stored hidden? quiet?        |
| Member`  |             |              | muted_until? periods?`                        |

Ids contain no ``#``, so no two records share a key. `User` and `Chat` repeat their `PK` as `SK`:
index `by_member` inverts the keys, and a constant `SK` would put them all into one index partition.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import cast

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
from chatserver.warm.dynamo.item_attributes import (
    find_number,
    find_text,
    find_texts,
    format_key,
    get_number,
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
    """Return the partition key of a chat, which is also the sort key of its `Chat` item."""
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

    def encode(self) -> Item:
        item = row_key(user_key(self.user), user_key(self.user))
        item[Field.CREATED] = {"N": str(self.created_ms)}
        item[Field.RESTRICTED] = {"BOOL": self.is_restricted}
        if self.name is not None:
            item[Field.NAME] = {"S": self.name}
        return item

    @classmethod
    def decode(cls, item: Item) -> User:
        """Decode a user. Raises CorruptData."""
        return cls(
            user=_decode_id(item, Field.PK, "u#"),
            name=find_text(item, Field.NAME),
            created_ms=get_number(item, Field.CREATED),
            about=find_text(item, Field.ABOUT),
            banned_ms=get_number(item, Field.BANNED) if Field.BANNED in item else None,
            before=get_number(item, Field.BEFORE) if Field.BEFORE in item else 0,
            erased_ms=get_number(item, Field.ERASED) if Field.ERASED in item else None,
            is_restricted=item.get(Field.RESTRICTED, {"BOOL": True})["BOOL"],
            words=find_texts(item, Field.WORDS),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Chat:
    """A chat. `version` counts the changes to its membership and settings, starting at 1.

    `change` is the last change, until it is applied in Redis and delivered; see
    `chatserver.service.membership.group_membership`. `unstored` contains the latest changes whose
    entries may not have been stored yet. `count` is the number of members; items written by the
    first releases lack it. `large` is the version at which the chat became a large chat (without
    inboxes), or 0. `users` are the two users of a direct chat. A user who has not opened the chat
    has no `Member` item until the first message.
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

    def encode(self, state: str, origin: str) -> Item:
        """Encode a chat as an item with `state` and the creation request digest `origin`."""
        item = row_key(chat_key(self.chat), chat_key(self.chat))
        item[Field.KIND] = {"S": self.kind}
        item[Field.VERSION] = {"N": str(self.version)}
        item[Field.CREATED] = {"N": str(self.created_ms)}
        item[Field.STATE] = {"S": state}
        item[Field.ORIGIN] = {"S": origin}
        if self.count is not None:
            item[Field.MEMBERS] = {"N": str(self.count)}
        if self.users:
            item[Field.USERS] = {"SS": list(self.users)}
        if self.large:
            item[Field.LARGE] = {"N": str(self.large)}
        if self.change is not None:
            item[Field.CHANGE] = {"S": self.change}
        if self.name is not None:
            item[Field.NAME] = {"S": self.name}
        return item

    @classmethod
    def decode(cls, item: Item) -> Chat:
        """Decode a chat. Raises CorruptData."""
        kind = get_text(item, Field.KIND)
        if kind not in {"direct", "group", "companion"}:
            raise CorruptData(f"table directory: {format_key(item)} has the unknown kind {kind!r}")
        return cls(
            chat=_decode_id(item, Field.PK, "c#"),
            kind=cast(ChatKind, kind),
            name=find_text(item, Field.NAME),
            version=get_number(item, Field.VERSION),
            created_ms=get_number(item, Field.CREATED),
            joining="open" if find_text(item, Field.JOINING) == "open" else "invited",
            history="all" if find_text(item, Field.HISTORY) == "all" else "joined",
            change=find_text(item, Field.CHANGE),
            unstored=find_text(item, Field.UNSTORED),
            large=get_number(item, Field.LARGE) if Field.LARGE in item else 0,
            count=get_number(item, Field.MEMBERS) if Field.MEMBERS in item else None,
            slow_s=get_number(item, Field.SLOW_S) if Field.SLOW_S in item else 0,
            retention_s=get_number(item, Field.RETENTION_S) if Field.RETENTION_S in item else 0,
            blockers=frozenset(item.get(Field.BLOCKED, {"SS": ()})["SS"]),
            ended_ms=get_number(item, Field.ENDED) if Field.ENDED in item else None,
            topic=find_text(item, Field.TOPIC) or None,
            picture=find_text(item, Field.PICTURE) or None,
            users=tuple(sorted(item.get(Field.USERS, {"SS": ()})["SS"])),
        )


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
class Member:
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

    def encode(self) -> Item:
        item = row_key(chat_key(self.chat), member_key(self.user))
        item[Field.ROLE] = {"S": self.role}
        item[Field.JOINED] = {"N": str(self.joined)}
        item[Field.READ] = {"N": str(self.read)}
        item[Field.RECEIVED] = {"N": str(self.received)}
        return item | _encode_kept(self)

    @classmethod
    def decode(cls, item: Item) -> Member:
        """Decode a member. Raises CorruptData."""
        role = get_text(item, Field.ROLE)
        if role not in {"owner", "admin", "member"}:
            raise CorruptData(f"table directory: {format_key(item)} has the unknown role {role!r}")
        return cls(
            chat=_decode_id(item, Field.PK, "c#"),
            user=_decode_id(item, Field.SK, MEMBER_PREFIX),
            role=cast(Role, role),
            joined=get_number(item, Field.JOINED),
            read=get_number(item, Field.READ),
            received=get_number(item, Field.RECEIVED),
            hidden=_decode_hidden(item),
            muted_until=find_number(item, Field.MUTED_UNTIL),
            quiet_until=find_number(item, Field.QUIET),
            periods=_decode_periods(item),
        )


def left_key(chat: str, user: str) -> Item:
    """Return the key of a `FormerMember` item."""
    return row_key(user_key(user), LEFT_PREFIX + chat)


def encode_former(chat: str, user: str, former: FormerMember) -> Item:
    item = left_key(chat, user)
    item[Field.JOINED] = {"N": str(former.last.first)}
    item[Field.LEFT] = {"N": str(former.last.last)}
    item[Field.MID] = {"S": former.mid}
    item[Field.STORED] = {"N": str(former.stored)}
    return item | _encode_kept(former)


def decode_former(item: Item) -> tuple[str, FormerMember]:
    """Decode a former membership; return `(user, former)`. Raises CorruptData."""
    former = FormerMember(
        last=Period(find_number(item, Field.JOINED) or 1, find_number(item, Field.LEFT) or 0),
        mid=find_text(item, Field.MID) or "",
        stored=find_number(item, Field.STORED) or 0,
        periods=_decode_periods(item),
        hidden=_decode_hidden(item),
        quiet_until=find_number(item, Field.QUIET),
        muted_until=find_number(item, Field.MUTED_UNTIL),
    )
    return _decode_id(item, Field.PK, "u#"), former


def _encode_kept(member: Member | FormerMember) -> Item:
    """Return the attributes that a member keeps after leaving and rejoining."""
    item: Item = {}
    if member.hidden:
        item[Field.HIDDEN] = {"NS": [str(seq) for seq in member.hidden]}
    if member.quiet_until is not None:
        item[Field.QUIET] = {"N": str(member.quiet_until)}
    if member.muted_until is not None:
        item[Field.MUTED_UNTIL] = {"N": str(member.muted_until)}
    if member.periods:
        item[Field.PERIODS] = {"S": format_periods(member.periods)}
    return item


def _decode_hidden(item: Item) -> tuple[int, ...]:
    return tuple(sorted(map(int, item.get(Field.HIDDEN, {"NS": ()})["NS"])))


def _decode_periods(item: Item) -> Periods:
    try:
        return parse_periods(get_text(item, Field.PERIODS)) if Field.PERIODS in item else ()
    except ValueError as exc:
        raise CorruptData(f"table directory: {format_key(item)} has invalid periods") from exc


def with_unlisted(chat: Chat, members: list[Member]) -> list[Member]:
    """Return `members`, plus the users in `chat.users` without a `Member` item, sorted by id."""
    listed = {member.user for member in members}
    unlisted = [Member(chat.chat, user, "member") for user in chat.users if user not in listed]
    return sorted([*members, *unlisted], key=lambda member: member.user) if unlisted else members


def _decode_id(item: Item, name: str, prefix: str) -> str:
    text = get_text(item, name)
    if not text.startswith(prefix):
        raise CorruptData(
            f"table directory: {format_key(item)}: {name} does not begin with {prefix}"
        )
    return text.removeprefix(prefix)
