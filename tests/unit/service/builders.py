"""Audiences and fakes for the tests of use cases."""

from __future__ import annotations

from collections.abc import Mapping

from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.domain.messages import Audience
from chatserver.errors import NotFound

ALICE, BOB, CAROL = UserId("alice"), UserId("bob"), UserId("carol")
CHAT = ChatId("c1")
EPOCH = Epoch("E1")


def audience_of(
    *users: UserId,
    chat: ChatId = CHAT,
    kind: str = "group",
    name: str = "",
    after: Mapping[UserId, int] | None = None,
    is_inline: bool = True,
    gate: str = "E1:1",
    is_large: bool = False,
    top: int = 1000,
    done: int = 0,
) -> Audience:
    """Return an audience; `after` has the seq above which a member gets messages."""
    floors = {user: Seq((after or {}).get(user, 0)) for user in users}
    receivers = dict(zip(users, reversed(users), strict=True)) if kind == "direct" else {}
    return Audience(
        chat=chat,
        epoch=EPOCH,
        kind=kind,
        name=name,
        users=floors,
        joined={user: Seq(floor + 1) for user, floor in floors.items()},
        top=Seq(top),
        done=Seq(done),
        receiver_of=receivers,
        is_large=is_large,
        inline_users=users if is_inline and not is_large else (),
        gate=gate,
        keys_packed=b"",
        keys_count=0,
        args_packed=b"",
        sender_packed={},
        prefix_of={},
    )


class KnownAudiences:
    """The audiences of existing chats, with checks of membership."""

    def __init__(self, *audiences: Audience) -> None:
        self.by_chat = {audience.chat: audience for audience in audiences}

    async def get(self, chat: ChatId) -> Audience:
        if chat not in self.by_chat:
            raise NotFound("chat: no such chat, or you are not a member")
        return self.by_chat[chat]

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        audience = await self.get_for_member(chat, user)
        return Reader(Seq(audience.users[user] + 1), Seq(2**53))

    async def add_periods(self, chat: ChatId, user: UserId, reader: Reader) -> Reader:
        return reader._replace(periods=())

    async def get_for_member(self, chat: ChatId, user: UserId) -> Audience:
        audience = await self.get(chat)
        if user not in audience.users:
            raise NotFound("chat: no such chat, or you are not a member")
        return audience
