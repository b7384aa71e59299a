"""Users, chats and memberships.

Owns table `directory`; `chatserver.warm.chats.directory_items` defines its items. A chat's item and
its memberships share a partition, so one Query reads a whole chat. The index `by_member` inverts
the keys, to list a user's chats.

Creating a chat takes one transaction per `MEMBERS_IN_TRANSACTION` members. Each transaction also
writes the chat's item, on the condition that it does not exist or is `forming` for the same
request. The last transaction marks the item as ready. Therefore:

- Readers see a chat only when its item is ready; by then it is complete.
- A crash leaves a forming item. Only a retry of the same request can complete it, because a chat id
  belongs to one request forever.
- Members are written only while the chat is forming, so a late retry cannot restore a member who
  has left, or reset a read mark.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from chatserver.domain.companion_ids import is_session_chat
from chatserver.domain.ids import ChatId
from chatserver.domain.membership_rules import Role
from chatserver.errors import BadRequest, Conflict, CorruptData, NotFound, Unavailable
from chatserver.protocol.frames import MEMBERS_MAX
from chatserver.warm.chats import directory_items
from chatserver.warm.chats.directory_items import CHAT, MEMBER, USER, StoredChat, StoredMember, User
from chatserver.warm.dynamo.batched_reads import BatchedReads
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import DIRECTORY, MEMBER_INDEX
from chatserver.warm.schema.tables import DirectoryField as Field

# DynamoDB allows 100 items, but a transaction with 100 items delays all other requests from this
# process by about 50 ms. If all servers run on one machine, it delays requests from all processes.
MEMBERS_IN_TRANSACTION = 49
PAUSE_S_MAX = 0.02
MEMBERS_READ_MAX = 100_000
_CHATS: Final = (
    directory_items.chat_key("0"),
    directory_items.chat_key("~"),
)  # key range of all chats, including companion sessions
_ROWS_IN_PAGE: Final = 1_000
_ROWS_IN_BATCH: Final = 50  # memberships per BatchGetItem: each needs two of its 100 keys


class ChatMembership(NamedTuple):
    """A chat and a user's membership in it."""

    chat: StoredChat
    member: StoredMember


class Directory:
    """Repository of table `directory`. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self._reads = BatchedReads(client, self._table.name)

    # Users.

    async def get_or_create_user(self, user: str, now: float) -> tuple[User, bool]:
        """Return `(user, is_new)`: the stored record, and whether this call created it.

        Guarantees:
            Idempotent. If `is_new`, the user has no chats, logins or blocks.
            Cost: one key in a shared BatchGetItem, and one write for a new user.
        """
        key = directory_items.user_key(user)
        if items := await self._reads.get([directory_items.row_key(key, key)]):
            return USER.decode(items[0]), False
        new_user = User(user, None, int(now * 1000))
        stored = await self._put_if_absent(new_user)
        return stored, stored is new_user

    async def put_user_if_absent(self, user: str, name: str | None, now: float) -> User:
        """Create a user if it does not exist; return the stored record.

        Guarantees:
            Idempotent: an existing user and its name are not changed.
            Cost: one write unit, even if the user exists; see `get_or_create_user`.
        """
        return await self._put_if_absent(User(user, name, int(now * 1000)))

    async def _put_if_absent(self, new_user: User) -> User:
        is_absent = Attr(Field.PK).is_absent
        try:
            await self._table.put(USER.encode(new_user), if_=is_absent, keeps_stored=True)
        except ConditionFailed as exc:
            stored = exc.stored[0]
            return USER.decode(stored) if stored else await self.get_user(new_user.user)
        return new_user

    async def get_user(self, user: str) -> User:
        """Return a user. Strongly consistent.

        Raises:
            NotFound: the user does not exist.
        """
        item = await self._find_row(directory_items.user_key(user))
        record = None if item is None else USER.decode(item)
        if record is None or record.erased_ms is not None:
            raise NotFound(f"user {user}: does not exist")
        return record

    async def find_known(self, users: Collection[str]) -> set[str]:
        """Return which of `users` exist. Strongly consistent. Cost: one call per 100 users."""
        names = map(directory_items.user_key, set(users))
        items = await self._table.get_items([(name, name) for name in names])
        stored = [USER.decode(item) for item in items]
        return {user.user for user in stored if user.erased_ms is None}

    async def check(self) -> None:
        """Check that the table can be read. Cost: one read unit.

        Raises:
            Unavailable: DynamoDB does not respond.
            ConfigError: the table does not exist or access is denied.
        """
        await self._find_row(directory_items.user_key("-"))

    # Chats.

    async def create_direct(self, chat: str, user: str, other: str, now: float) -> StoredChat:
        """Create the direct chat between two users, or return the existing one.

        Guarantees and errors: see `create_group`.

        Adds the chat only to the chat list of `user`. Call `add_to_chat_list` for `other`.
        """
        roles: dict[str, Role] = {user: "member", other: "member"}
        users = tuple(sorted(roles))
        record = StoredChat(chat, "direct", None, 1, int(now * 1000), count=len(users), users=users)
        stored = await self._create(record, roles, listed=[user])
        if stored is not record:
            await self.add_to_chat_list(chat, user)
        return stored

    async def find_direct(self, chat: str, user: str) -> tuple[bool, bool]:
        """Return `(exists, is_listed)`; `is_listed`: the chat is in the user's chat list.

        Strongly consistent.
        """
        key = directory_items.chat_key(chat)
        items = await self._table.get_items([(key, key), (key, directory_items.member_key(user))])
        chats = {item[Field.SK]["S"] for item in items}
        return key in chats, len(chats) == 2

    async def find_existing(self, chats: Collection[ChatId]) -> list[ChatId]:
        """Return which of `chats` exist. Strongly consistent. Cost: one call per 100 chats."""
        keys = [directory_items.chat_key(chat) for chat in chats]
        items = await self._table.get_items([(key, key) for key in keys])
        existing = {item[Field.PK]["S"] for item in items}
        return [chat for chat, key in zip(chats, keys, strict=True) if key in existing]

    async def add_to_chat_list(self, chat: str, user: str) -> bool:
        """Add a direct chat to a user's chat list; return False if the user is not in the chat.

        Idempotent.

        Raises:
            Unavailable: the chat may have been added.
        """
        key = directory_items.chat_key(chat)
        is_absent = Attr(Field.PK).is_absent
        actions = [
            self._table.check_action((key, key), if_=Attr(Field.USERS).contains(user)),
            self._table.put_action(
                MEMBER.encode(StoredMember(chat, user, "member")), if_=is_absent
            ),
        ]
        try:
            await self._client.transact(actions)
        except ConditionFailed:
            return (await self.find_direct(chat, user))[1]
        return True

    async def create_session_chat(
        self, chat: str, user: str, companion: str, name: str, now: float
    ) -> StoredChat:
        """Create the chat of a companion session, or return the existing one."""
        roles: dict[str, Role] = {user: "member", companion: "member"}
        record = StoredChat(chat, "companion", name, 1, int(now * 1000), count=len(roles))
        return await self._create(record, roles)

    async def create_group(
        self,
        chat: str,
        creator: str,
        members: Iterable[str],
        name: str | None,
        now: float,
        first_change: str | None = None,
        invited: Iterable[str] = (),
    ) -> StoredChat:
        """Create a group with owner `creator` and `members`; return the stored record.

        The request digest includes `invited`, so a retry is recognized even after some invited
        users have accepted. If `first_change` is given, the group is a large chat, and this change
        must be propagated to its members.

        Guarantees:
            Idempotent: a retry returns the record of the first request, including its time.
            Atomic: the group exists with all its members or not at all. After a crash, a retry
            completes it.
            Cancellation: safe, like a crash.
            Cost: one transaction per 49 members. Between transactions, the call pauses for as long
            as the last transaction took, at most 20 ms.

        Raises:
            Conflict: the chat exists with another kind, name or membership.
            BadRequest: the group would have more than `MEMBERS_MAX` members.
        """
        roles: dict[str, Role] = dict.fromkeys(members, "member")
        roles[creator] = "owner"
        if len(roles) > MEMBERS_MAX:
            raise BadRequest(f"members: must be at most {MEMBERS_MAX}, including the creator")
        large = 0 if first_change is None else 1
        created = StoredChat(
            chat,
            "group",
            name,
            1,
            int(now * 1000),
            change=first_change,
            large=large,
            count=len(roles),
        )
        return await self._create(created, roles, invited)

    async def _create(
        self,
        chat: StoredChat,
        roles: Mapping[str, Role],
        invited: Iterable[str] = (),
        listed: Collection[str] | None = None,
    ) -> StoredChat:
        """Create a chat, or return the existing one.

        `listed`: the users who get `StoredMember` items; None: all.
        """
        roles_with_invited: dict[str, Role] = dict.fromkeys(invited, "member")
        roles_with_invited |= roles
        origin = directory_items.describe_origin(chat.kind, chat.name, roles_with_invited)
        users = sorted(roles if listed is None else listed)
        members = [MEMBER.encode(StoredMember(chat.chat, user, roles[user])) for user in users]
        starts = range(0, len(members), MEMBERS_IN_TRANSACTION)
        async with self._client.deadline():
            for index in starts:
                state = directory_items.READY if index == starts[-1] else directory_items.FORMING
                actions = [
                    self._put_if_forming(directory_items.encode_chat(chat, state, origin), origin)
                ]
                batch = members[index : index + MEMBERS_IN_TRANSACTION]
                actions += map(self._table.put_action, batch)
                started_s = time.monotonic()
                try:
                    await self._client.transact(actions)
                except ConditionFailed as exc:
                    return await self._get_existing(chat.chat, origin, exc.stored[0])
                if index != starts[-1]:
                    await asyncio.sleep(min(time.monotonic() - started_s, PAUSE_S_MAX))
        return chat

    def _put_if_forming(self, row: Item, origin: str) -> Action:
        is_same = Attr(Field.ORIGIN) == origin
        is_forming = (Attr(Field.STATE) == directory_items.FORMING) & is_same
        return self._table.put_action(
            row, if_=Attr(Field.PK).is_absent | is_forming, keeps_stored=True
        )

    async def _get_existing(self, chat: str, origin: str, stored: Item | None) -> StoredChat:
        """Return the existing chat if the same request created it. Raises Conflict, Unavailable."""
        row = stored or await self._find_row(directory_items.chat_key(chat))
        if row is None:
            raise Unavailable(f"chat {chat}: changed while being created; try again")
        if directory_items.get_origin(row) != origin:
            raise Conflict(f"chat {chat}: exists with another kind, name or membership")
        return CHAT.decode(row)

    async def get_chat(self, chat: str) -> StoredChat:
        """Return a chat. Strongly consistent.

        Raises:
            NotFound: the chat does not exist.
        """
        row = await self._find_row(directory_items.chat_key(chat))
        if row is None or not directory_items.is_ready(row):
            raise NotFound(f"chat {chat}: does not exist")
        return CHAT.decode(row)

    async def list_members(self, chat: str) -> list[StoredMember]:
        """Return all members of a chat, sorted by user id; see `get_chat_with_members`."""
        return (await self.get_chat_with_members(chat))[1]

    async def get_chat_with_members(self, chat: str) -> tuple[StoredChat, list[StoredMember]]:
        """Return a chat and all its members, sorted by user id. Strongly consistent.

        Guarantees:
            Cost: about one read unit per 40 members, and one Query per MB.

        Raises:
            NotFound: the chat does not exist.
            CorruptData: the chat has more than `MEMBERS_READ_MAX` members.
        """
        key = directory_items.chat_key(chat)
        # The chat's own item sorts before its members' items.
        span = Span(DIRECTORY, key, between=(key, directory_items.AFTER_MEMBERS))
        rows: list[Item] = []
        async with self._client.deadline():
            async for page in self._table.iter_query(span):
                rows += page
                if (
                    not rows
                    or rows[0][Field.SK]["S"] != key
                    or not directory_items.is_ready(rows[0])
                ):
                    raise NotFound(f"chat {chat}: does not exist")
                members = [row for row in rows[1:] if _is_member(row)]
                if len(members) > MEMBERS_READ_MAX:
                    raise CorruptData(f"chat {chat}: has more than {MEMBERS_READ_MAX} members")
        chat_row = CHAT.decode(rows[0])
        listed = [MEMBER.decode(row) for row in members]
        return chat_row, directory_items.with_unlisted(chat_row, listed)

    async def list_memberships(
        self, user: str, *, limit: int, start: Token | None = None
    ) -> QueryPage[ChatMembership]:
        """Return a page of a user's chats, including companion sessions, sorted by chat id.

        Guarantees:
            Chats and read marks are strongly consistent. The list of chats is eventually
            consistent: a chat created a moment ago may be missing.
            Cost: one index Query, and one BatchGetItem per 50 chats.
        """
        span = Span(DIRECTORY, directory_items.member_key(user), MEMBER_INDEX)
        query = self._table.build_query(span)
        return await read_page(
            self._client, span, query, self._load_memberships, limit=limit, start=start
        )

    async def list_all_memberships(self, user: str, sessions_max: int) -> list[ChatMembership]:
        """Return all of a user's chats, but only the newest `sessions_max` companion sessions.

        Guarantees:
            Consistency: same as `list_memberships`.
            Cost: one index Query per `_ROWS_IN_PAGE` chats, and one BatchGetItem per 50 chats,
            which may be shared with other callers.
        """
        # In descending order, companion sessions come after all other chats, newest first.
        span = Span(DIRECTORY, directory_items.member_key(user), MEMBER_INDEX, _CHATS)
        pages = self._table.iter_query(span, is_newest_first=True, limit=_ROWS_IN_PAGE)
        memberships: list[ChatMembership] = []
        sessions = 0
        async for rows in pages:
            for start in range(0, len(rows), _ROWS_IN_BATCH):
                for membership in await self._load_memberships(
                    rows[start : start + _ROWS_IN_BATCH]
                ):
                    if membership is None:
                        continue
                    if is_session_chat(membership.chat.chat):
                        if sessions == sessions_max:
                            return memberships
                        sessions += 1
                    memberships.append(membership)
        return memberships

    async def _load_memberships(self, rows: list[Item]) -> list[ChatMembership | None]:
        keys: list[Item] = []
        for row in rows:
            chat = row[Field.PK]["S"]
            keys += [
                directory_items.row_key(chat, row[Field.SK]["S"]),
                directory_items.row_key(chat, chat),
            ]
        items = await self._reads.get(keys)
        items_by_key = {(item[Field.PK]["S"], item[Field.SK]["S"]): item for item in items}
        memberships: list[ChatMembership | None] = []
        for row in rows:
            key = row[Field.PK]["S"]
            chat, member = items_by_key.get((key, key)), items_by_key.get((key, row[Field.SK]["S"]))
            if chat is None or member is None or not directory_items.is_ready(chat):
                memberships.append(None)
            else:
                memberships.append(ChatMembership(CHAT.decode(chat), MEMBER.decode(member)))
        return memberships

    async def _find_row(self, key: str) -> Item | None:
        return await self._table.find((key, key))


def _is_member(row: Item) -> bool:
    is_member: bool = row[Field.SK]["S"].startswith(directory_items.MEMBER_PREFIX)
    return is_member
