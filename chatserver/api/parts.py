"""Where the API's use cases meet adapters; the gateway's place for that is `chatserver.app`.

The API takes part as a gateway without sessions: it commits through the same scripts, its fan-out
is the same, and devices hear of it by mail to the gateways where they are. Unlike a gateway it may
talk to the warm tier itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable

from chatserver.api.authentication import Authentication
from chatserver.api.companionparts import make_talks
from chatserver.api.invitationparts import make_invitations
from chatserver.api.people import People, make_people
from chatserver.api.security import Authenticator
from chatserver.api.socialparts import SocialApi, make_social
from chatserver.auth.cursors import Cursors
from chatserver.auth.tokens import Tokens
from chatserver.cold.archive import SegmentObjects
from chatserver.cold.attachments import Files
from chatserver.cold.bodies import BodyFiles
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.exports import ExportFiles
from chatserver.config import Settings, check_secret
from chatserver.domain.clock import Clock
from chatserver.domain.ids import GatewayId, new_id
from chatserver.hot.absence import Absence
from chatserver.hot.amending import Amendments, Hidden
from chatserver.hot.answers import Answers
from chatserver.hot.audience import Audiences
from chatserver.hot.blocks import Blocks
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.client import HotClient, open_hot
from chatserver.hot.deltas import Deltas
from chatserver.hot.directchats import DirectChats
from chatserver.hot.files import MediaJobs, SendableFiles
from chatserver.hot.groupcommit import PartitionedCommit
from chatserver.hot.hooks import HookFeed
from chatserver.hot.inbox import Inboxes
from chatserver.hot.limits import ALL_KINDS, Limits
from chatserver.hot.mailbox import Postman
from chatserver.hot.membership import HotMembership, MemberCheck
from chatserver.hot.opening import Opening
from chatserver.hot.posting import Poster
from chatserver.hot.settling import Settling
from chatserver.hot.spending import Spendings
from chatserver.hot.tokens import TokenBudgets
from chatserver.hot.watchers import Watchers
from chatserver.hot.watching import Seen
from chatserver.outbound.http import Outbound, open_outbound
from chatserver.outbound.webhooks import Webhook
from chatserver.service.accounting import keep_account
from chatserver.service.amending import Amending
from chatserver.service.apartness import Apartness
from chatserver.service.around import Around
from chatserver.service.arrivals import Arrivals
from chatserver.service.asking import Asking
from chatserver.service.attachments import Sendable, Uploads
from chatserver.service.chats import Chats
from chatserver.service.coldlog import ColdLog
from chatserver.service.companions import Companions
from chatserver.service.companionsessions import CompanionSessions
from chatserver.service.finding import Finding
from chatserver.service.former_members import FormerMembers
from chatserver.service.history import History
from chatserver.service.invitations import Invitations
from chatserver.service.keeping import Keeping
from chatserver.service.membership import Membership
from chatserver.service.messaging import Messaging
from chatserver.service.moderation import Moderation
from chatserver.service.oldertiers import OlderTiers
from chatserver.service.opening import Opener
from chatserver.service.privacy import Privacy
from chatserver.service.references import References
from chatserver.service.screening import Screening, make_messaging
from chatserver.service.socialfiles import SpaceReaders
from chatserver.service.stored import StoredWaits
from chatserver.service.turnover import Turnover
from chatserver.service.views import Views
from chatserver.service.watching import Watching
from chatserver.warm import removal
from chatserver.warm.aged import AgedMessages
from chatserver.warm.attachments import Attachments
from chatserver.warm.bodies import LongBodies
from chatserver.warm.changes import MessageChanges
from chatserver.warm.chatfiles import ChatFiles
from chatserver.warm.client import DynamoClient, open_dynamodb
from chatserver.warm.directory import Directory
from chatserver.warm.holds import Holds
from chatserver.warm.jobs import JobRows
from chatserver.warm.manifests import Manifests
from chatserver.warm.memberships import Memberships
from chatserver.warm.messages import MessageRepository
from chatserver.warm.moderation import Moderation as ModerationRows
from chatserver.warm.patterns import MessagePatterns
from chatserver.warm.push_subscriptions import PushSubscriptions
from chatserver.warm.quiet import QuietChats
from chatserver.warm.schema import watch_schema
from chatserver.warm.shardlist import ShardList
from chatserver.warm.social_graph import SocialGraph

STORED_LOOK_S = 0.1  # no mail tells the API that a message is stored


@dataclasses.dataclass(frozen=True, slots=True)
class ApiParts:
    """What routes work with."""

    settings: Settings
    clock: Clock
    hot: HotClient
    dynamodb: DynamoClient
    directory: Directory
    postman: Postman
    poster: Poster
    inboxes: Inboxes
    audiences: Audiences
    tokens: Tokens
    authenticator: Authenticator
    people: People
    answers: Answers
    cursors: Cursors
    limits: Limits
    opener: Opener
    invitations: Invitations
    arrivals: Arrivals
    messaging: Messaging
    amending: Amending
    chats: Chats
    history: History
    finding: Finding
    around: Around
    members: MemberCheck
    memberships: Memberships
    membership: Membership
    keeping: Keeping
    holds: Holds
    moderation: Moderation
    companions: Companions
    companion_sessions: CompanionSessions
    screening: Screening | None
    turnover: Turnover
    log: ChatLog
    stored: StoredWaits
    watching: Watching
    absence: Absence
    subscriptions: PushSubscriptions
    quiet: QuietChats
    sendable: Sendable
    asking: Asking
    uploads: Uploads
    privacy: Privacy
    social: SocialApi
    # Called at the end, while the stores are still there.
    closers: list[Callable[[], Awaitable[None]]] = dataclasses.field(default_factory=list)


@contextlib.asynccontextmanager
async def open_api_parts(
    settings: Settings, clock: Clock, hot: HotClient | None = None
) -> AsyncIterator[ApiParts]:
    """Connect the API to its stores and put its use cases together.

    `hot`: a client of the caller's own, for what needs no Redis, such as the OpenAPI document.

    Raises:
        ConfigError: a setting does not allow it to start.
        Unavailable: there is no Redis.
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
) -> ApiParts:
    me = GatewayId(new_id().lower())  # has no mailbox and no sessions, so nobody looks for it
    postman, online_ttl_s = Postman(hot), settings.gateway.online_ttl_s
    poster, hidden, inboxes, log = Poster(postman, me), Hidden(hot), Inboxes(hot), ChatLog(hot)
    directory = Directory(dynamodb.for_feature("directory"), settings.warm)
    shards = ShardList(dynamodb.for_feature("patterns"), settings.warm, clock)
    reads = dynamodb.for_feature("history")
    bodies = LongBodies(reads, settings.warm, BodyFiles(store), clock, shards)
    graph = SocialGraph(dynamodb.for_feature("social"), settings.warm)
    patterns = MessagePatterns(
        dynamodb.for_feature("patterns"), settings.warm, shards=shards, bodies=bodies
    )
    cold = ColdLog(
        Manifests(reads, settings.warm),
        SegmentObjects(store, settings.archive),
        AgedMessages(reads, settings.warm, clock, shards, bodies),
        clock,
    )
    older = OlderTiers(MessageRepository(reads, settings.warm, shards=shards, bodies=bodies), cold)
    bounds = settings.chats.members_max, settings.chats.fanout_members_max
    people = make_people(settings, clock, hot, dynamodb, postman, outbound)
    rows, blocks = ModerationRows(dynamodb.for_feature("moderation"), settings.warm), Blocks(hot)
    apart = Apartness(rows, blocks)
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
        removal.Keeping.by(settings.archive),
        clock,
        bodies,
    )
    opener = Opener(
        directory,
        older,
        Opening(hot),
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
    audiences, settling = Audiences(hot, opener.load_chat, charge), Settling(hot, postman)
    watchers = Watchers(hot, me, online_ttl_s)
    memberships, hot_membership = (
        Memberships(dynamodb.for_feature("membership"), settings.warm),
        HotMembership(hot),
    )
    members = MemberCheck(hot, audiences, memberships)
    views = Views(log, hidden, members)
    former = FormerMembers(memberships, log, older, hidden, clock)
    turnover = Turnover(
        memberships,
        hot_membership,
        inboxes,
        audiences,
        settling,
        opener.load_chat,
        poster,
        watchers,
        former,
    )
    body, pages = settings.chats.body_bounds, settings.chats.page_bounds
    screening = _make_screening(settings, clock, outbound, hot_membership)
    messaging = make_messaging(
        screening,
        settings.webhooks.before_send_in_flight_max,
        PartitionedCommit(hot, me),
        audiences,
        inboxes,
        settling,
        poster,
        watchers,
        settings.gateway.expires_s_max,
        clock,
        body,
        charge,
    )
    membership = Membership(
        memberships,
        hot_membership,
        turnover,
        *bounds,
        apart=apart,
        clock=clock,
        invitations=invitations,
        former=former,
    )
    history = History(log, older, members, clock, views, pages)
    seen = Seen(hot, me, online_ttl_s, settings.presence.last_seen_ttl_s)
    stored = StoredWaits(settings.gateway.stored_timeout_s, STORED_LOOK_S)
    hot.on_epoch.append(stored.give_up_all)
    return ApiParts(
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
        arrivals=Arrivals(inboxes, opener, directory),
        messaging=messaging,
        amending=Amending(
            Amendments(hot, me),
            hidden,
            audiences,
            log,
            opener,
            messaging,
            inboxes,
            poster,
            body,
            charge,
            members,
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
        finding=Finding(
            patterns,
            members,
            memberships,
            log,
            views,
            opener,
            clock,
            ChatFiles(dynamodb.for_feature("patterns"), settings.warm, clock, shards, bodies),
        ),
        around=Around(history, members, log, patterns, cold),
        members=members,
        memberships=memberships,
        turnover=turnover,
        membership=membership,
        holds=holds,
        keeping=Keeping(
            holds,
            directory,
            memberships,
            hot_membership,
            turnover,
            inboxes,
            poster,
            membership.change,
            clock,
        ),
        moderation=Moderation(
            rows,
            directory,
            memberships,
            hot_membership,
            turnover,
            blocks,
            members,
            inboxes,
            poster,
            HookFeed(hot, settings.webhooks).feed,
            clock,
            graph,
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
        absence=Absence(hot),
        subscriptions=PushSubscriptions(
            dynamodb.for_feature("push"), settings.warm, settings.notify.subscriptions_max
        ),
        quiet=QuietChats(dynamodb.for_feature("push"), settings.warm),
        watching=Watching(
            seen,
            inboxes,
            audiences.get,
            settings.presence.watched_max,
            clock,
            blocks,
            DirectChats(hot, audiences.get),
        ),
        asking=Asking(TokenBudgets(hot, settings.assistant), hot_membership, Deltas(hot), members),
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
            settings.privacy,
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
    """Return what asks `before_send`: the API may do so itself, a gateway asks a worker."""
    hooks = settings.webhooks
    if hooks.before_send_url is None:
        return None
    secret, timeout_s = hooks.secret.get_secret_value(), hooks.before_send_timeout_s
    webhook = Webhook(outbound, hooks.before_send_url, secret, timeout_s, clock)
    return Screening(webhook, references, hooks, clock, settings.chats.body_bounds)
