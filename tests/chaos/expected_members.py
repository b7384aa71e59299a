"""The expected members of each chat, and the actions that change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.simulation import USERS, Action

MANY_MEMBERS, FEW_MEMBERS = 10, 5  # more members than `fanout_members_max`, and well below it


class ExpectedMembers:
    """The members of each chat as user numbers; the first member of a group owns it and stays."""

    def __init__(self, chats: Sequence[Sequence[int]]) -> None:
        self.of = [list(users) for users in chats]

    def join_or_leave(self, chat: int, user: int) -> Iterator[Action]:
        """A member leaves, a non-member joins."""
        yield from self._switch(chat, user, "join", "leave", (user, chat))

    def invite_or_remove(self, chat: int, user: int) -> Iterator[Action]:
        """The owner removes a member, or invites a non-member."""
        yield from self._switch(chat, user, "invite", "remove", (self.of[chat][0], chat, user))

    def _switch(
        self, chat: int, user: int, entry: str, end: str, args: tuple[int, ...]
    ) -> Iterator[Action]:
        members = self.of[chat]
        if user not in members:
            members.append(user)
            yield Action(entry, args)
        elif user != members[0]:
            members.remove(user)
            yield Action(end, args)

    def resize(self, chat: int) -> Iterator[Action]:
        """Many users join or leave at once, so that the chat becomes large, or small again."""
        members = self.of[chat]
        if len(members) > (MANY_MEMBERS + FEW_MEMBERS) // 2:
            leaving = members[FEW_MEMBERS:]
            del members[FEW_MEMBERS:]
            yield from (Action("leave", (user, chat)) for user in leaving)
            return
        others = [user for user in range(USERS) if user not in members]
        joining = others[: MANY_MEMBERS - len(members)]
        members += joining
        yield from (Action("join", (user, chat)) for user in joining)
