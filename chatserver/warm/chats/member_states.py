"""Members' read marks, and the messages they have hidden, in `Member` items of `directory`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from chatserver.domain.ids import DIRECT_PREFIX
from chatserver.errors import Unavailable
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats import directory_items
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.directory_items import MEMBER
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient
from chatserver.warm.dynamo.conditions import Add, Attr, Discard
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

MARKS_IN_FLIGHT_MAX = 16
MARK_TRIES_MAX = 8


class MarkUpdate(NamedTuple):
    """A user's last read and last received seq in a chat; 0 leaves a marker unchanged."""

    chat: str
    user: str
    read: int
    received: int


class MemberStates:
    """Repository of members' read marks, and of the messages that they have hidden."""

    def __init__(self, client: DynamoClient, directory: Directory) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self._directory = directory

    async def put_marks(self, marks: Sequence[MarkUpdate | tuple[str, str, int, int]]) -> None:
        """Advance members' read and received marks.

        Guarantees:
            A marker never moves back, even with concurrent writers; repeats have no effect.
            Markers of non-members are dropped. In a direct chat, a missing `Member` item is created
            for either user.
            Cancellation: safe; some markers may have moved.
            Cost: one UpdateItem per update, or two if another writer has moved a marker further.

        Raises:
            Unavailable: some markers may not have moved.
        """
        by_member: dict[tuple[str, str], tuple[int, int]] = {}
        for chat, user, read, received in marks:
            previous = by_member.get((chat, user), (0, 0))
            by_member[chat, user] = (max(previous[0], read), max(previous[1], received))
        furthest = [MarkUpdate(*member, *seqs) for member, seqs in by_member.items()]
        async with self._client.deadline():
            await map_concurrently(
                self._put_mark, furthest, in_flight_max=MARKS_IN_FLIGHT_MAX, name="put-mark"
            )

    async def _put_mark(self, mark: MarkUpdate) -> None:
        for _ in range(MARK_TRIES_MAX):
            try:
                await self._move_mark(mark)
            except ConditionFailed as exc:
                if exc.stored[0] is None:
                    is_direct = mark.chat.startswith(DIRECT_PREFIX)
                    if is_direct and await self._directory.add_to_chat_list(mark.chat, mark.user):
                        continue
                    return  # not a member
                stored = MEMBER.decode(exc.stored[0])
                further = mark._replace(
                    read=max(mark.read, stored.read), received=max(mark.received, stored.received)
                )
                if (further.read, further.received) == (stored.read, stored.received):
                    return
                mark = further
            else:
                return
        raise Unavailable(
            f"read mark of {mark.user} in {mark.chat}: too many concurrent changes; try again"
        )

    async def _move_mark(self, mark: MarkUpdate) -> None:
        """Write a mark. Raises ConditionFailed if it would move back or there is no item."""
        read, received = Attr(Field.READ), Attr(Field.RECEIVED)
        await self._table.update(
            (directory_items.chat_key(mark.chat), directory_items.member_key(mark.user)),
            {Field.READ: mark.read, Field.RECEIVED: mark.received},
            # If the item does not exist, its attributes are missing, so the condition is false too.
            if_=(read <= mark.read) & (received <= mark.received),
            keeps_stored=True,
        )

    async def lower_marks(self, marks: Sequence[MarkUpdate], top: int) -> None:
        """Lower stored marks to `top`, the newest seq of their chat.

        `marks` are the stored marks; one that has moved since it was read is not changed.

        Guarantees:
            Idempotent.
            Cost: one UpdateItem per mark.

        Raises:
            Unavailable: some marks may not have been lowered.
        """

        async def lower(mark: MarkUpdate) -> None:
            key = (directory_items.chat_key(mark.chat), directory_items.member_key(mark.user))
            lowered = {Field.READ: min(mark.read, top), Field.RECEIVED: min(mark.received, top)}
            is_same = (Attr(Field.READ) == mark.read) & (Attr(Field.RECEIVED) == mark.received)
            await try_write(self._table.update(key, lowered, if_=is_same))

        await map_concurrently(lower, marks, in_flight_max=MARKS_IN_FLIGHT_MAX, name="lower-mark")

    async def add_hidden(self, chat: str, user: str, seqs: Collection[int]) -> None:
        """Hide messages that a current or former member has deleted for themselves.

        The call has no effect for a user who has never been a member.

        Guarantees:
            Idempotent; calls can run in any order.

        Raises:
            Unavailable: the messages may or may not have been hidden.
        """
        if not seqs:  # DynamoDB has no empty sets
            return
        member = directory_items.row_key(
            directory_items.chat_key(chat), directory_items.member_key(user)
        )
        if await self._add_hidden(member, seqs):
            return
        if chat.startswith(DIRECT_PREFIX):
            if await self._directory.add_to_chat_list(chat, user):
                await self._add_hidden(member, seqs)
        elif await self._add_hidden(directory_items.left_key(chat, user), seqs):
            # If the user rejoined after the first attempt, the new member item may lack these seqs.
            await self._add_hidden(member, seqs)

    async def remove_hidden(self, chat: str, user: str, seqs: Collection[int]) -> None:
        """Remove the seqs of lost messages from those that a member has hidden. Idempotent."""
        key = (directory_items.chat_key(chat), directory_items.member_key(user))
        changes = {Field.HIDDEN: Discard(frozenset(seqs))}
        await try_write(self._table.update(key, changes, if_=Attr(Field.PK).exists))

    async def _add_hidden(self, key: Key, seqs: Collection[int]) -> bool:
        """Add `seqs` to attribute `hidden` of an item; return False if the item does not exist."""
        changes = {Field.HIDDEN: Add(frozenset(seqs))}
        return await try_write(self._table.update(key, changes, if_=Attr(Field.PK).exists))
