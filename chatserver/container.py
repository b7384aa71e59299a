"""Dependency wiring: connects use cases to adapters. Closes resources in reverse order."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

from chatserver.auth.tokens import Tokens
from chatserver.config import Settings, check_secret
from chatserver.domain.clock import Clock
from chatserver.domain.ids import GatewayId
from chatserver.features.attachments.hot import RemoteFiles, SendableFiles
from chatserver.features.attachments.service.sendable import AttachmentResolver
from chatserver.features.companions.commands import CompanionRequests
from chatserver.features.companions.hot.response_stream import Deltas
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.webhooks.before_send import (
    BEFORE_SEND_IN_FLIGHT_MAX,
    BeforeSendCheck,
    make_messaging,
)
from chatserver.hot.bus.mailbox import Mailbox, MailboxWriter
from chatserver.hot.bus.rpc_client import WarmCalls
from chatserver.hot.chats.amendments import Amendments, Hidden
from chatserver.hot.chats.answered_chats import DirectChats
from chatserver.hot.chats.audiences import Audiences
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.large_chats import LargeChatSubscriptions
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.hot.chats.undelivered import UndeliveredChats
from chatserver.hot.key_sets import KeySets
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.blocks import Blocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.presence import Presence
from chatserver.hot.users.presence_subscriptions import PresenceStates
from chatserver.hot.users.rate_limits import Limits
from chatserver.hot.users.revocations import Revocations
from chatserver.hot.users.session_directory import Sessions
from chatserver.service.access.authentication import TokenAuthentication
from chatserver.service.access.host_keyring import KeyRing
from chatserver.service.chats.service import Chats
from chatserver.service.history.large_chat_log import ChannelLog
from chatserver.service.history.service import History
from chatserver.service.history.sync import Sync
from chatserver.service.history.views import Views
from chatserver.service.messaging.amendments import MessageAmendments
from chatserver.service.messaging.device_notifier import DeviceNotifier
from chatserver.service.messaging.service import Messaging
from chatserver.service.presence.service import LAST_SEEN_TTL_S, UserPresence
from chatserver.service.presence.subscriptions import SUBSCRIBED_USERS_MAX, PresenceSubscriptions


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayContainer:
    """The use cases and adapters of a gateway."""

    hot: HotClient
    entrance: TokenAuthentication
    host_keys: KeyRing
    messaging: Messaging
    amending: MessageAmendments
    chats: Chats
    history: History
    members: MemberCheck
    sync: Sync
    log: ChatLog
    inboxes: Inboxes
    presence: Presence
    mailbox: Mailbox
    watchers: LargeChatSubscriptions
    channel_log: ChannelLog
    audiences: Audiences
    postman: MailboxWriter
    warm: WarmCalls
    seen: PresenceStates
    sessions: Sessions
    limits: Limits
    attendance: UserPresence
    watching: PresenceSubscriptions
    before_send: BeforeSendCheck | None
    sendable: AttachmentResolver
    companion_requests: CompanionRequests


@contextlib.asynccontextmanager
async def open_gateway_parts(
    settings: Settings,
    gateway: GatewayId,
    clock: Clock,
    make_router: Callable[[MailboxWriter, WarmCalls], DeviceNotifier],
) -> AsyncIterator[GatewayContainer]:
    """Connect a gateway to Redis and create its use cases.

    Raises:
        ConfigError: a setting prevents the start.
        Unavailable: Redis is unavailable.
    """
    check_secret(settings)
    async with open_hot(settings.redis) as hot:
        warm = WarmCalls(hot, gateway, settings.gateway.rpc_timeout_s)
        postman = MailboxWriter(hot)
        router = make_router(postman, warm)
        limits = Limits(hot, settings.limits)
        charge = limits.charge_memory
        audiences = Audiences(hot, warm.load_chat, charge)
        inboxes, log = Inboxes(hot), ChatLog(hot)
        presence = Presence(hot, gateway, settings.gateway.online_ttl_s)
        watchers = LargeChatSubscriptions(hot, gateway, settings.gateway.online_ttl_s)
        hidden = Hidden(hot)
        members = MemberCheck(hot, audiences, warm)
        views = Views(log, hidden, members)
        body, pages = settings.chats.body_bounds, settings.chats.page_bounds
        before_send = None
        if settings.webhooks.before_send_url is not None:
            before_send = BeforeSendCheck(
                verdicts=warm,
                references=HotMembership(hot),
                settings=settings.webhooks,
                clock=clock,
                body_bounds=body,
            )
        apart = Blocks(hot)
        messaging = make_messaging(
            before_send,
            BEFORE_SEND_IN_FLIGHT_MAX,
            commits=PartitionedCommit(hot, gateway),
            audiences=audiences,
            inboxes=inboxes,
            undelivered=UndeliveredChats(hot, postman),
            devices=router,
            large_chats=watchers,
            expires_s_max=settings.gateway.expires_s_max,
            clock=clock,
            body_bounds=body,
            charge=charge,
        )
        keep_s = LAST_SEEN_TTL_S
        seen = PresenceStates(
            hot=hot, gateway=gateway, online_ttl_s=settings.gateway.online_ttl_s, keep_s=keep_s
        )
        sessions_max, watched_max = (
            settings.gateway.sessions_per_user_max,
            SUBSCRIBED_USERS_MAX,
        )
        tokens = Tokens(settings.auth, clock)
        host_keys = KeyRing(
            settings=settings.auth,
            cache=KeySets(hot),
            fetch=warm.load_keys,
            activate=tokens.use_key_set,
            clock=clock,
        )
        yield GatewayContainer(
            hot=hot,
            entrance=TokenAuthentication(
                tokens, Revocations(hot, settings.auth.token_s_max), host_keys
            ),
            host_keys=host_keys,
            messaging=messaging,
            amending=MessageAmendments(
                commits=Amendments(hot, gateway),
                hidden=hidden,
                audiences=audiences,
                log=log,
                warm=warm,
                messaging=messaging,
                inboxes=inboxes,
                devices=router,
                body_bounds=body,
                charge=charge,
                members=members,
            ),
            chats=Chats(
                inboxes=inboxes,
                audiences=audiences,
                log=log,
                older=warm,
                directory=warm,
                load_user=warm.load_user,
                devices=router,
                clock=clock,
                views=views,
                large_chats=watchers,
                blocks=apart,
                pages=pages,
                charge=charge,
            ),
            history=History(
                log=log, older=warm, members=members, clock=clock, views=views, pages=pages
            ),
            members=members,
            sync=Sync(inboxes=inboxes, log=log, older=warm, clock=clock, views=views, pages=pages),
            log=log,
            inboxes=inboxes,
            presence=presence,
            # Same TTL as presence: entries of a dead gateway are detected and removed when mail is
            # posted to it.
            mailbox=Mailbox(hot, gateway, settings.gateway.online_ttl_s),
            watchers=watchers,
            channel_log=ChannelLog(log, views, clock),
            audiences=audiences,
            postman=postman,
            warm=warm,
            seen=seen,
            sessions=Sessions(hot=hot, gateway=gateway, sessions_max=sessions_max, keep_s=keep_s),
            limits=limits,
            attendance=UserPresence(seen, settings.presence, clock),
            watching=PresenceSubscriptions(
                states=seen,
                inboxes=inboxes,
                load_chat=audiences.get,
                users_max=watched_max,
                clock=clock,
                blocks=apart,
                direct_chats=DirectChats(hot, audiences.get),
            ),
            before_send=before_send,
            companion_requests=CompanionRequests(
                budgets=TokenBudgets(hot, settings.companions),
                references=HotMembership(hot),
                streams=Deltas(hot),
                members=members,
            ),
            sendable=AttachmentResolver(
                files=SendableFiles(hot),
                load_file=RemoteFiles(warm).find_file,
                settings=settings.attachments,
                clock=clock,
            ),
        )
