"""Dependency wiring of invitations, for processes that change memberships."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId
from chatserver.features.social.warm.graph import SocialGraph
from chatserver.hot.bus.mailbox import MailboxWriter
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.answered_chats import DirectChats
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.contact_limits import Contacts
from chatserver.hot.users.group_quotas import GroupQuotas
from chatserver.hot.users.inbox import Inboxes
from chatserver.service.membership.invitations import PENDING_MAX, Invitations
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.invitations import InvitationRows
from chatserver.warm.dynamo.client import DynamoClient


def make_invitations(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    dynamodb: DynamoClient,
    directory: Directory,
    open_chat: Callable[[ChatId], Awaitable[object]],
) -> Invitations:
    """Return the invitation use cases. `open_chat` loads a chat into Redis."""
    return Invitations(
        rows=InvitationRows(dynamodb.for_feature("membership"), settings.warm),
        follows=SocialGraph(dynamodb.for_feature("social"), settings.warm),
        direct_chats=DirectChats(hot, open_chat, directory.find_existing),
        quotas=GroupQuotas(hot),
        contacts=Contacts(hot, settings.chats.new_contacts_per_day),
        inboxes=Inboxes(hot),
        devices=RemoteDelivery(MailboxWriter(hot), GatewayId("-")),
        policy=settings.chats.invitations,
        pending_max=PENDING_MAX,
        chats_max=settings.chats.per_user_max,
        clock=clock,
    )
