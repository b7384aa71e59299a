"""Dependency wiring of the HTTP API; `chatserver.container` does the same for gateways.

The API acts as a gateway without sessions. It commits through the same scripts, uses the same
fan-out, and notifies devices through the mailboxes of their gateways. Unlike a gateway, it may
access the warm tier directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable

from chatserver.api.account_container import AccountContainer, make_people
from chatserver.api.authentication import Authentication
from chatserver.api.companion_container import make_talks
from chatserver.api.invitation_container import make_invitations
from chatserver.api.security import Authenticator
from chatserver.api.social_container import SocialApi, make_social
from chatserver.auth.page_cursors import Cursors
from chatserver.auth.tokens import Tokens
from chatserver.cold.archive import SegmentObjects
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.long_bodies import BodyFiles
from chatserver.config import Settings, check_secret
from chatserver.domain.clock import Clock
from chatserver.domain.ids import GatewayId, new_id
from chatserver.domain.membership import GROUP_MEMBERS_MAX
from chatserver.features.attachments.cold import Files
from chatserver.features.attachments.hot import MediaJobs, SendableFiles
from chatserver.features.attachments.references import References
from chatserver.features.attachments.service import Sendable, Uploads
from chatserver.features.attachments.warm import Attachments
from chatserver.features.companions.hot.response_stream import Deltas
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.requests import CompanionRequests
from chatserver.features.companions.service import Companions
from chatserver.features.companions.sessions import CompanionSessions
from chatserver.features.privacy.cold import ExportFiles
from chatserver.features.privacy.service import Privacy
from chatserver.features.privacy.warm.jobs import JobRows
from chatserver.features.push.hot import PushState
from chatserver.features.push.model import SUBSCRIPTIONS_MAX
from chatserver.features.push.warm.muted_chats import MutedChats
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.features.social.pictures import SpaceReaders
from chatserver.features.social.warm.graph import SocialGraph
from chatserver.features.webhooks.before_send import (
    BEFORE_SEND_IN_FLIGHT_MAX,
    Screening,
    make_messaging,
)
from chatserver.features.webhooks.client import Webhook
from chatserver.features.webhooks.hot import HookFeed
from chatserver.hot.bus.idempotent_answers import Answers
from chatserver.hot.bus.mailbox import MailboxWriter
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.amendments import Amendments, Hidden
from chatserver.hot.chats.answered_chats import DirectChats
from chatserver.hot.chats.audiences import Audiences
from chatserver.hot.chats.chat_loader import HotChatLoader
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.large_chats import LargeChatSubscriptions
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.hot.chats.undelivered import UndeliveredChats
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.blocks import Blocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.presence_subscriptions import PresenceStates
from chatserver.hot.users.rate_limits import ALL_KINDS, Limits
from chatserver.operations.cost.hot import Spendings
from chatserver.operations.cost.recorder import keep_account
from chatserver.outbound.http_client import Outbound, open_outbound
from chatserver.service.chats.chat_loader import ChatLoader
from chatserver.service.chats.service import Chats
from chatserver.service.chats.user_loader import UserLoader
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.message_context import MessageContext
from chatserver.service.history.message_queries import MessageQueries
from chatserver.service.history.older_tiers import OlderTiers
from chatserver.service.history.service import History
from chatserver.service.history.views import Views
from chatserver.service.membership.former_members import FormerMembers
from chatserver.service.membership.invitations import Invitations
from chatserver.service.membership.propagation import MembershipPropagation
from chatserver.service.membership.service import Membership
from chatserver.service.messaging.amendments import MessageAmendments
from chatserver.service.messaging.service import Messaging
from chatserver.service.messaging.stored_acks import STORED_TIMEOUT_S, StoredWaits
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.service.moderation.retention import Retention
from chatserver.service.moderation.service import Moderation
from chatserver.service.presence.service import LAST_SEEN_TTL_S
from chatserver.service.presence.subscriptions import SUBSCRIBED_USERS_MAX, PresenceSubscriptions
from chatserver.warm.archive.archivable_entries import ArchivableMessages
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.legal_holds import Holds
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.chats.moderation import Moderation as ModerationRows
from chatserver.warm.dynamo.client import DynamoClient, open_dynamodb
from chatserver.warm.messages import ttl
from chatserver.warm.messages.chat_files import ChatFiles
from chatserver.warm.messages.long_bodies import LongBodies
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_queries import MessageIndexes
from chatserver.warm.messages.store import MessageRepository
from chatserver.warm.messages.write_shards import ShardList
from chatserver.warm.schema.active_version import watch_schema

STORED_POLL_S = 0.1  # polling interval: the API has no mailbox


@dataclasses.dataclass(frozen=True, slots=True)
class ApiContainer:
    """Dependencies of the HTTP routes."""

    settings: Settings
    clock: Clock
    hot: HotClient
    dynamodb: DynamoClient
    directory: Directory
    postman: MailboxWriter
    poster: RemoteDelivery
    inboxes: Inboxes
    audiences: Audiences
    tokens: Tokens
    authenticator: Authenticator
    people: AccountContainer
    answers: Answers
    cursors: Cursors
    limits: Limits
    opener: ChatLoader
    invitations: Invitations
    arrivals: UserLoader
    messaging: Messaging
    amending: MessageAmendments
    chats: Chats
    history: History
    finding: MessageQueries
    around: MessageContext
    members: MemberCheck
    memberships: Memberships
    membership: Membership
    keeping: Retention
    holds: Holds
    moderation: Moderation
    companions: Companions
    companion_sessions: CompanionSessions
    screening: Screening | None
    turnover: MembershipPropagation
    log: ChatLog
    stored: StoredWaits
    watching: PresenceSubscriptions
    absence: PushState
    subscriptions: PushSubscriptions
    quiet: MutedChats
    sendable: Sendable
    asking: CompanionRequests
    uploads: Uploads
    privacy: Privacy
    social: SocialApi
    # Called at shutdown, while the stores are still connected.
    closers: list[Callable[[], Awaitable[None]]] = dataclasses.field(default_factory=list)


@contextlib.asynccontextmanager
async def open_api_parts(
    settings: Settings, clock: Clock, hot: HotClient | None = None
) -> AsyncIterator[ApiContainer]:
    """Connect the API to its stores and build its use cases.

    `hot`: an existing client, for callers that need no Redis, such as the OpenAPI generator.

    Raises:
        ConfigError: the settings do not allow the API to start.
        Unavailable: Redis is not available.
    """
    check_secret(settings)
    async with contextlib.AsyncExitStack() as stack:
        needs_schema = hot is None
        if hot is None:
            hot = await stack.enter_async_context(open_hot(settings.redis))
        dynamodb = await stack.enter_async_context(open_dynamodb(settings.warm))
        if needs_schema:
            account = keep_account(dynamodb.meter.purse, Spendings(hot), clock)
            await stack.enter_async_context(account)
            schema = dynamodb.for_feature("schema")
            await stack.enter_async_context(watch_schema(schema, settings.warm, "api", clock))
        store = await stack.enter_async_context(open_s3(settings.cold))
        outbound = await stack.enter_async_context(open_outbound(settings.outbound))
        parts = _put_together(settings, clock, hot, dynamodb, store, outbound)
        keys = asyncio.create_task(parts.people.host_keys.run(), name="host-keys")
        try:
            yield parts
        finally:
            keys.cancel()
            closing = (close() for close in parts.closers)
            await asyncio.gather(keys, *closing, return_exceptions=True)


def _put_together(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    dynamodb: DynamoClient,
    store: ObjectStore,
    outbound: Outbound,
) -> ApiContainer:
    me = GatewayId(new_id().lower())  # no mailbox, no sessions
    postman, online_ttl_s = MailboxWriter(hot), settings.gateway.online_ttl_s
    poster, hidden, inboxes, log = (
        RemoteDelivery(postman, me),
        Hidden(hot),
        Inboxes(hot),
        ChatLog(hot),
    )
    directory = Directory(dynamodb.for_feature("directory"), settings.warm)
    shards = ShardList(dynamodb.for_feature("patterns"), settings.warm, clock)
    reads = dynamodb.for_feature("history")
    bodies = LongBodies(reads, settings.warm, BodyFiles(store), clock, shards)
    graph = SocialGraph(dynamodb.for_feature("social"), settings.warm)
    patterns = MessageIndexes(
        dynamodb.for_feature("patterns"), settings.warm, shards=shards, bodies=bodies
    )
    cold = ColdLog(
        Manifests(reads, settings.warm),
        SegmentObjects(store, settings.archive),
        ArchivableMessages(reads, settings.warm, clock, shards, bodies),
        clock,
    )
    older = OlderTiers(MessageRepository(reads, settings.warm, shards=shards, bodies=bodies), cold)
    bounds = GROUP_MEMBERS_MAX, settings.chats.fanout_members_max
    people = make_people(settings, clock, hot, dynamodb, postman, outbound)
    rows, blocks = ModerationRows(dynamodb.for_feature("moderation"), settings.warm), Blocks(hot)
    apart = BlockPolicy(rows, blocks)
    talks = make_talks(dynamodb.for_feature("companions"), settings.warm, directory, clock)
    invitations = make_invitations(
        settings, clock, hot, dynamodb, directory, lambda chat: opener.load_chat(chat)
    )
    holds = Holds(dynamodb.for_feature("moderation"), settings.warm)
    files, sendable = Attachments(dynamodb.for_feature("media"), settings.warm), SendableFiles(hot)
    changes = MessageChanges(
        dynamodb.for_feature("persist"),
        settings.warm,
        References(files, sendable, clock).release,
        cold,
        holds,
        shards,
        ttl.ItemRetention.by(settings.archive),
        clock,
        bodies,
    )
    opener = ChatLoader(
        directory,
        older,
        HotChatLoader(hot),
        inboxes,
        clock,
        hidden,
        *bounds,
        restore_revoked=people.revoking.restore,
        apart=apart,
        revive=talks.opener.revive,
        invitations=invitations,
        changes=changes,
    )
    limits = Limits(hot, settings.limits, ALL_KINDS)
    charge = limits.charge_memory
    audiences, settling = Audiences(hot, opener.load_chat, charge), UndeliveredChats(hot, postman)
    watchers = LargeChatSubscriptions(hot, me, online_ttl_s)
    memberships, hot_membership = (
        Memberships(dynamodb.for_feature("membership"), settings.warm),
        HotMembership(hot),
    )
    members = MemberCheck(hot, audiences, memberships)
    views = Views(log, hidden, members)
    former = FormerMembers(
        memberships=memberships, log=log, older=older, hidden=hidden, clock=clock
    )
    turnover = MembershipPropagation(
        memberships=memberships,
        hot_membership=hot_membership,
        inboxes=inboxes,
        audiences=audiences,
        undelivered=settling,
        load_chat=opener.load_chat,
        devices=poster,
        large_chats=watchers,
        former_members=former,
    )
    body, pages = settings.chats.body_bounds, settings.chats.page_bounds
    screening = _make_screening(settings, clock, outbound, hot_membership)
    messaging = make_messaging(
        screening,
        BEFORE_SEND_IN_FLIGHT_MAX,
        commits=PartitionedCommit(hot, me),
        audiences=audiences,
        inboxes=inboxes,
        undelivered=settling,
        devices=poster,
        large_chats=watchers,
        expires_s_max=settings.gateway.expires_s_max,
        clock=clock,
        body_bounds=body,
        charge=charge,
    )
    membership = Membership(
        memberships=memberships,
        hot_membership=hot_membership,
        propagation=turnover,
        former_members=former,
        members_max=GROUP_MEMBERS_MAX,
        fanout_members_max=settings.chats.fanout_members_max,
        block_policy=apart,
        invitations=invitations,
        clock=clock,
    )
    history = History(log, older, members, clock, views, pages)
    seen = PresenceStates(hot, me, online_ttl_s, LAST_SEEN_TTL_S)
    stored = StoredWaits(STORED_TIMEOUT_S, STORED_POLL_S)
    hot.on_epoch.append(stored.expire_all)
    return ApiContainer(
        settings=settings,
        clock=clock,
        hot=hot,
        dynamodb=dynamodb,
        directory=directory,
        postman=postman,
        poster=poster,
        inboxes=inboxes,
        audiences=audiences,
        tokens=people.tokens,
        authenticator=Authentication(
            people.entrance,
            people.keys,
            inboxes,
            opener,
            directory,
            settings.auth.admins,
        ),
        people=people,
        answers=Answers(hot),
        cursors=Cursors(settings.auth.secret),
        limits=limits,
        opener=opener,
        invitations=invitations,
        arrivals=UserLoader(inboxes, opener, directory),
        messaging=messaging,
        amending=MessageAmendments(
            commits=Amendments(hot, me),
            hidden=hidden,
            audiences=audiences,
            log=log,
            warm=opener,
            messaging=messaging,
            inboxes=inboxes,
            devices=poster,
            body_bounds=body,
            charge=charge,
            members=members,
        ),
        chats=Chats(
            inboxes,
            audiences,
            log,
            opener,
            opener,
            poster,
            clock,
            views,
            watchers,
            blocks,
            pages,
            charge,
        ),
        history=history,
        finding=MessageQueries(
            patterns,
            members,
            memberships,
            log,
            views,
            opener,
            clock,
            ChatFiles(dynamodb.for_feature("patterns"), settings.warm, clock, shards, bodies),
        ),
        around=MessageContext(history, members, log, patterns, cold),
        members=members,
        memberships=memberships,
        turnover=turnover,
        membership=membership,
        holds=holds,
        keeping=Retention(
            holds=holds,
            directory=directory,
            memberships=memberships,
            hot_membership=hot_membership,
            propagation=turnover,
            membership=membership,
            inboxes=inboxes,
            devices=poster,
            clock=clock,
        ),
        moderation=Moderation(
            rows=rows,
            directory=directory,
            memberships=memberships,
            hot_membership=hot_membership,
            propagation=turnover,
            blocks=blocks,
            members=members,
            inboxes=inboxes,
            devices=poster,
            publish_event=HookFeed(hot, settings.webhooks).feed,
            clock=clock,
            follows=graph,
        ),
        companions=talks.companions,
        companion_sessions=CompanionSessions(
            talks.rows,
            talks.personas,
            talks.book,
            opener,
            hot_membership,
            turnover,
            inboxes,
            poster,
            clock,
        ),
        screening=screening,
        log=log,
        stored=stored,
        absence=PushState(hot),
        subscriptions=PushSubscriptions(
            dynamodb.for_feature("push"), settings.warm, SUBSCRIPTIONS_MAX
        ),
        quiet=MutedChats(dynamodb.for_feature("push"), settings.warm),
        watching=PresenceSubscriptions(
            seen,
            inboxes,
            audiences.get,
            SUBSCRIBED_USERS_MAX,
            clock,
            blocks,
            DirectChats(hot, audiences.get),
        ),
        asking=CompanionRequests(
            TokenBudgets(hot, settings.companions), hot_membership, Deltas(hot), members
        ),
        sendable=Sendable(sendable, files.find_file, settings.attachments, clock),
        uploads=Uploads(
            files,
            Files(store),
            sendable,
            MediaJobs(hot),
            SpaceReaders(members),
            history,
            settings.attachments,
            clock,
        ),
        privacy=Privacy(
            JobRows(dynamodb.for_feature("privacy"), settings.warm),
            people.closing,
            ExportFiles(store).sign_link,
            clock,
            people.reserved,
        ),
        social=make_social(
            settings,
            clock,
            hot,
            dynamodb.for_feature("social"),
            graph,
            apart,
            Files(store),
            sendable,
        ),
    )


def _make_screening(
    settings: Settings, clock: Clock, outbound: Outbound, references: HotMembership
) -> Screening | None:
    """Return the before-send webhook, or None if it is not configured.

    The API calls the webhook directly; a gateway calls it through a worker.
    """
    hooks = settings.webhooks
    if hooks.before_send_url is None:
        return None
    secret, timeout_s = hooks.secret.get_secret_value(), hooks.before_send_timeout_s
    webhook = Webhook(outbound, hooks.before_send_url, secret, timeout_s, clock)
    return Screening(webhook, references, hooks, clock, settings.chats.body_bounds)
