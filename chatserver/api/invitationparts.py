"""Dependency wiring of invitations, for the processes that change memberships."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId
from chatserver.hot.client import HotClient
from chatserver.hot.contacts import Contacts
from chatserver.hot.directchats import DirectChats
from chatserver.hot.inbox import Inboxes
from chatserver.hot.mailbox import Postman
from chatserver.hot.posting import Poster
from chatserver.hot.rooms import Rooms
from chatserver.service.invitations import Invitations
from chatserver.warm.client import DynamoClient
from chatserver.warm.directory import Directory
from chatserver.warm.invitations import InvitationRows
from chatserver.warm.social_graph import SocialGraph


def make_invitations(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    dynamodb: DynamoClient,
    directory: Directory,
    open_chat: Callable[[ChatId], Awaitable[object]],
) -> Invitations:
    """Return the use cases. `open_chat` loads a chat into Redis."""
    return Invitations(
        rows=InvitationRows(dynamodb.for_feature("membership"), settings.warm),
        graph=SocialGraph(dynamodb.for_feature("social"), settings.warm),
        directs=DirectChats(hot, open_chat, directory.find_existing),
        rooms=Rooms(hot),
        contacts=Contacts(hot, settings.chats.new_contacts_per_day),
        devices=Inboxes(hot),
        signals=Poster(Postman(hot), GatewayId("-")),
        policy=settings.chats.invitations,
        pending_max=settings.chats.invitations_max,
        chats_max=settings.chats.per_user_max,
        clock=clock,
    )
