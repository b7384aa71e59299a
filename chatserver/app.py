"""The only place where use cases meet adapters. Opens them in order, closes them in reverse."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from chatserver.auth.tokens import Tokens
from chatserver.config import Settings, check_secret
from chatserver.domain.clock import Clock
from chatserver.domain.ids import GatewayId
from chatserver.hot.amending import Amendments, Hidden
from chatserver.hot.audience import Audiences
from chatserver.hot.blocks import Blocks
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.client import HotClient, open_hot
from chatserver.hot.deltas import Deltas
from chatserver.hot.directchats import DirectChats
from chatserver.hot.files import SendableFiles
from chatserver.hot.groupcommit import PartitionedCommit
from chatserver.hot.inbox import Inboxes
from chatserver.hot.keysets import KeySets
from chatserver.hot.limits import Limits
from chatserver.hot.mailbox import Mailbox, Postman
from chatserver.hot.membership import HotMembership, MemberCheck
from chatserver.hot.presence import Presence
from chatserver.hot.revocations import Revocations
from chatserver.hot.rpc import WarmCalls
from chatserver.hot.sessions import Sessions
from chatserver.hot.settling import Settling
from chatserver.hot.tokens import TokenBudgets
from chatserver.hot.watchers import Watchers
from chatserver.hot.watching import Seen
from chatserver.service.amending import Amending
from chatserver.service.asking import Asking
from chatserver.service.attachments import Sendable
from chatserver.service.channellog import ChannelLog
from chatserver.service.chats import Chats, Told
from chatserver.service.entrance import Entrance
from chatserver.service.history import History
from chatserver.service.keyring import KeyRing
from chatserver.service.messaging import Messaging, Pushes
from chatserver.service.presence import Attendance
from chatserver.service.screening import Screening, make_messaging
from chatserver.service.sync import Sync
from chatserver.service.views import Views
from chatserver.service.watching import Watching


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayParts:
    """What a gateway works with."""

    hot: HotClient
    entrance: Entrance
    host_keys: KeyRing
    messaging: Messaging
    amending: Amending
    chats: Chats
    history: History
    members: MemberCheck
    sync: Sync
    log: ChatLog
    inboxes: Inboxes
    presence: Presence
    mailbox: Mailbox
    watchers: Watchers
    channel_log: ChannelLog
    audiences: Audiences
    postman: Postman
    warm: WarmCalls
    seen: Seen
    sessions: Sessions
    limits: Limits
    attendance: Attendance
    watching: Watching
    screening: Screening | None
    sendable: Sendable
    asking: Asking


class AnyRouter(Pushes, Told, Protocol):
    """Brings events and signals to devices."""


@contextlib.asynccontextmanager
async def open_gateway_parts(
    settings: Settings,
    gateway: GatewayId,
    clock: Clock,
    make_router: Callable[[Postman, WarmCalls], AnyRouter],
) -> AsyncIterator[GatewayParts]:
    """Connect a gateway to Redis and put its use cases together.

    Raises:
        ConfigError: a setting does not allow it to start.
        Unavailable: there is no Redis.
    """
    check_secret(settings)
    async with open_hot(settings.redis) as hot:
        warm = WarmCalls(hot, gateway, settings.gateway.rpc_timeout_s)
        postman = Postman(hot)
        router = make_router(postman, warm)
        limits = Limits(hot, settings.limits)
        charge = limits.charge_memory
        audiences = Audiences(hot, warm.load_chat, charge)
        inboxes, log = Inboxes(hot), ChatLog(hot)
        presence = Presence(hot, gateway, settings.gateway.online_ttl_s)
        watchers = Watchers(hot, gateway, settings.gateway.online_ttl_s)
        hidden = Hidden(hot)
        members = MemberCheck(hot, audiences, warm)
        views = Views(log, hidden, members)
        body, pages = settings.chats.body_bounds, settings.chats.page_bounds
        screening = None
        if settings.webhooks.before_send_url is not None:
            screening = Screening(warm, HotMembership(hot), settings.webhooks, clock, body)
        apart = Blocks(hot)
        messaging = make_messaging(
            screening,
            settings.webhooks.before_send_in_flight_max,
            PartitionedCommit(hot, gateway),
            audiences,
            inboxes,
            Settling(hot, postman),
            router,
            watchers,
            settings.gateway.expires_s_max,
            clock,
            body,
            charge,
        )
        keep_s = settings.presence.last_seen_ttl_s
        seen = Seen(hot, gateway, settings.gateway.online_ttl_s, keep_s)
        sessions_max, watched_max = (
            settings.gateway.sessions_per_user_max,
            settings.presence.watched_max,
        )
        tokens = Tokens(settings.auth, clock)
        host_keys = KeyRing(settings.auth, KeySets(hot), warm.load_keys, tokens.use_key_set, clock)
        yield GatewayParts(
            hot=hot,
            entrance=Entrance(tokens, Revocations(hot, settings.auth.token_s_max), host_keys),
            host_keys=host_keys,
            messaging=messaging,
            amending=Amending(
                Amendments(hot, gateway),
                hidden,
                audiences,
                log,
                warm,
                messaging,
                inboxes,
                router,
                body,
                charge,
                members,
            ),
            chats=Chats(
                inboxes,
                audiences,
                log,
                warm,
                warm,
                router,
                clock,
                views,
                watchers,
                apart,
                pages,
                charge,
            ),
            history=History(log, warm, members, clock, views, pages),
            members=members,
            sync=Sync(inboxes, log, warm, clock, views, pages),
            log=log,
            inboxes=inboxes,
            presence=presence,
            # As long as presence: what names a dead gateway is found out, and dropped, by the mail.
            mailbox=Mailbox(hot, gateway, settings.gateway.online_ttl_s),
            watchers=watchers,
            channel_log=ChannelLog(log, views, clock),
            audiences=audiences,
            postman=postman,
            warm=warm,
            seen=seen,
            sessions=Sessions(hot, gateway, sessions_max, keep_s),
            limits=limits,
            attendance=Attendance(seen, settings.presence, clock),
            watching=Watching(
                seen,
                inboxes,
                audiences.get,
                watched_max,
                clock,
                apart,
                DirectChats(hot, audiences.get),
            ),
            screening=screening,
            asking=Asking(
                TokenBudgets(hot, settings.assistant),
                HotMembership(hot),
                Deltas(hot),
                members,
            ),
            sendable=Sendable(SendableFiles(hot), warm.load_file, settings.attachments, clock),
        )
