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
from chatserver.api.companion_container import build_companions
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
from chatserver.features.attachments.service.references import References
from chatserver.features.attachments.service.sendable import AttachmentResolver
from chatserver.features.attachments.service.uploads import Uploads
from chatserver.features.attachments.warm import Attachments
from chatserver.features.companions.commands import CompanionRequests
from chatserver.features.companions.hot.response_stream import Deltas
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.service.companions import Companions
from chatserver.features.companions.service.sessions import CompanionSessions
from chatserver.features.privacy.cold import ExportFiles
from chatserver.features.privacy.service import Privacy
from chatserver.features.privacy.warm.jobs import JobRows
from chatserver.features.push.hot import PushState
from chatserver.features.push.model import SUBSCRIPTIONS_MAX
from chatserver.features.push.warm.muted_chats import MutedChats
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.features.social.service.pictures import SpaceReaders
from chatserver.features.social.warm.graph import SocialGraph
from chatserver.features.webhooks.before_send import (
    BEFORE_SEND_IN_FLIGHT_MAX,
    BeforeSendCheck,
    make_messaging,
)
from chatserver.features.webhooks.client import Webhook
from chatserver.features.webhooks.hot import WebhookEvents
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
from chatserver.operations.cost.hot import UsageTotals
from chatserver.operations.cost.recorder import record_usage
from chatserver.outbound.http_client import Outbound, open_outbound
from chatserver.service.chats.chat_creator import ChatCreator
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
    user_loader: UserLoader
    chat_creator: ChatCreator
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
    before_send: BeforeSendCheck | None
    turnover: MembershipPropagation
    log: ChatLog
    stored: StoredWaits
    watching: PresenceSubscriptions
    push_state: PushState
    subscriptions: PushSubscriptions
    muted_chats: MutedChats
    sendable: AttachmentResolver
    companion_requests: CompanionRequests
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
            account = record_usage(dynamodb.meter.purse, UsageTotals(hot), clock)
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
        manifests=Manifests(reads, settings.warm),
        segments=SegmentObjects(store, settings.archive),
        items=ArchivableMessages(reads, settings.warm, clock, shards, bodies),
        clock=clock,
    )
    older = OlderTiers(MessageRepository(reads, settings.warm, shards=shards, bodies=bodies), cold)
    people = make_people(settings, clock, hot, dynamodb, postman, outbound)
    rows, blocks = ModerationRows(dynamodb.for_feature("moderation"), settings.warm), Blocks(hot)
    apart = BlockPolicy(rows, blocks)
    companions = build_companions(
        dynamodb.for_feature("companions"), settings.warm, directory, clock
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
        directory=directory,
        messages=older,
        changes=changes,
        hot=HotChatLoader(hot),
        clock=clock,
        revive=companions.session_opener.create_missing_chat,
    )
    user_loader = UserLoader(
        directory=directory,
        hot=HotChatLoader(hot),
        inboxes=inboxes,
        hidden=hidden,
        block_policy=apart,
        clock=clock,
        restore_revoked=people.revoking.restore,
    )
    invitations = make_invitations(settings, clock, hot, dynamodb, directory, opener.load_chat)
    chat_creator = ChatCreator(
        directory=directory,
        loader=opener,
        block_policy=apart,
        invitations=invitations,
        clock=clock,
        members_max=GROUP_MEMBERS_MAX,
        fanout_members_max=settings.chats.fanout_members_max,
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
    before_send = _make_before_send(settings, clock, outbound, hot_membership)
    messaging = make_messaging(
        before_send,
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
    history = History(log=log, older=older, members=members, clock=clock, views=views, pages=pages)
    seen = PresenceStates(hot=hot, gateway=me, online_ttl_s=online_ttl_s, keep_s=LAST_SEEN_TTL_S)
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
            user_loader,
            directory,
            settings.auth.admins,
        ),
        people=people,
        answers=Answers(hot),
        cursors=Cursors(settings.auth.secret),
        limits=limits,
        opener=opener,
        invitations=invitations,
        user_loader=user_loader,
        chat_creator=chat_creator,
        messaging=messaging,
        amending=MessageAmendments(
            commits=Amendments(hot, me),
            hidden=hidden,
            audiences=audiences,
            log=log,
            warm=older,
            messaging=messaging,
            inboxes=inboxes,
            devices=poster,
            body_bounds=body,
            charge=charge,
            members=members,
        ),
        chats=Chats(
            inboxes=inboxes,
            audiences=audiences,
            log=log,
            older=older,
            directory=chat_creator,
            load_user=user_loader.load_user,
            devices=poster,
            clock=clock,
            views=views,
            large_chats=watchers,
            blocks=blocks,
            pages=pages,
            charge=charge,
        ),
        history=history,
        finding=MessageQueries(
            messages=patterns,
            files=ChatFiles(dynamodb.for_feature("patterns"), settings.warm, clock, bodies),
            members=members,
            memberships=memberships,
            log=log,
            older=older,
            views=views,
            clock=clock,
        ),
        around=MessageContext(
            history=history, members=members, log=log, messages=patterns, cold=cold
        ),
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
            publish_event=WebhookEvents(hot, settings.webhooks).publish,
            clock=clock,
            follows=graph,
        ),
        companions=companions.companions,
        companion_sessions=CompanionSessions(
            rows=companions.session_rows,
            companions=companions.companion_rows,
            catalog=companions.catalog,
            chat_creator=chat_creator,
            change_records=hot_membership,
            propagation=turnover,
            inboxes=inboxes,
            delivery=poster,
            clock=clock,
        ),
        before_send=before_send,
        log=log,
        stored=stored,
        push_state=PushState(hot),
        subscriptions=PushSubscriptions(
            dynamodb.for_feature("push"), settings.warm, SUBSCRIPTIONS_MAX
        ),
        muted_chats=MutedChats(dynamodb.for_feature("push"), settings.warm),
        watching=PresenceSubscriptions(
            states=seen,
            inboxes=inboxes,
            load_chat=audiences.get,
            users_max=SUBSCRIBED_USERS_MAX,
            clock=clock,
            blocks=blocks,
            direct_chats=DirectChats(hot, audiences.get),
        ),
        companion_requests=CompanionRequests(
            budgets=TokenBudgets(hot, settings.companions),
            references=hot_membership,
            streams=Deltas(hot),
            members=members,
        ),
        sendable=AttachmentResolver(
            files=sendable, load_file=files.find_file, settings=settings.attachments, clock=clock
        ),
        uploads=Uploads(
            rows=files,
            objects=Files(store),
            files=sendable,
            jobs=MediaJobs(hot),
            readers=SpaceReaders(members),
            pages=history,
            settings=settings.attachments,
            clock=clock,
        ),
        privacy=Privacy(
            jobs=JobRows(dynamodb.for_feature("privacy"), settings.warm),
            lockout=people.closing,
            sign=ExportFiles(store).sign_link,
            clock=clock,
            reserved=people.reserved,
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


def _make_before_send(
    settings: Settings, clock: Clock, outbound: Outbound, references: HotMembership
) -> BeforeSendCheck | None:
    """Return the before-send webhook, or None if it is not configured.

    The API calls the webhook directly; a gateway calls it through a worker.
    """
    hooks = settings.webhooks
    if hooks.before_send_url is None:
        return None
    secret, timeout_s = hooks.secret.get_secret_value(), hooks.before_send_timeout_s
    webhook = Webhook(
        outbound=outbound,
        url=hooks.before_send_url,
        secret=secret,
        timeout_s=timeout_s,
        clock=clock,
    )
    return BeforeSendCheck(
        verdicts=webhook,
        references=references,
        settings=hooks,
        clock=clock,
        body_bounds=settings.chats.body_bounds,
    )
