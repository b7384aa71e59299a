"""Where workers' use cases meet adapters; the gateway's place for that is `chatserver.app`.

Two places, because a gateway process must not import the AWS client.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable

from chatserver.api.companionparts import Talks, make_talks
from chatserver.api.invitationparts import make_invitations
from chatserver.auth.hostkeys import parse_jwks
from chatserver.cold.archive import SegmentObjects
from chatserver.cold.attachments import Files
from chatserver.cold.bodies import BodyFiles
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.exports import ExportFiles
from chatserver.config import Settings
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.figures import BusyChats
from chatserver.domain.ids import GatewayId, UserId
from chatserver.hot.amending import Amendments, Hidden
from chatserver.hot.answers import Answers
from chatserver.hot.audience import Audiences
from chatserver.hot.blocks import Blocks
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.client import HotClient, open_hot
from chatserver.hot.files import MediaJobs, SendableFiles
from chatserver.hot.hooks import HookFeed
from chatserver.hot.inbox import Inboxes
from chatserver.hot.keysets import KeySets
from chatserver.hot.mailbox import Postman
from chatserver.hot.membership import HotMembership, MemberCheck
from chatserver.hot.opening import Opening
from chatserver.hot.posting import Poster
from chatserver.hot.revocations import Revocations, SessionEnder
from chatserver.hot.settling import Settling
from chatserver.hot.spending import Spendings
from chatserver.hot.traces import Traces
from chatserver.hot.watchers import Watchers
from chatserver.outbound.documents import fetch_document
from chatserver.outbound.http import Outbound, open_outbound
from chatserver.service.accounting import keep_account
from chatserver.service.apartness import Apartness
from chatserver.service.coldlog import ColdLog
from chatserver.service.companionsessions import CompanionSessions
from chatserver.service.erasing import TextEraser
from chatserver.service.former_members import FormerMembers
from chatserver.service.invitations import Invitations
from chatserver.service.keyring import KeyFetcher
from chatserver.service.membership import Membership
from chatserver.service.moderation import Moderation
from chatserver.service.oldertiers import OlderTiers
from chatserver.service.opening import Opener
from chatserver.service.privacy import Closing
from chatserver.service.references import References
from chatserver.service.revoking import Revoking
from chatserver.service.said import Said
from chatserver.service.turnover import Turnover
from chatserver.warm.accounts import AccountRows
from chatserver.warm.aged import AgedMessages
from chatserver.warm.attachments import Attachments
from chatserver.warm.bodies import LongBodies
from chatserver.warm.changes import MessageChanges
from chatserver.warm.checkup import require_tables
from chatserver.warm.client import DynamoClient, open_dynamodb
from chatserver.warm.directory import Directory
from chatserver.warm.fanouts import Fanouts
from chatserver.warm.holds import Holds
from chatserver.warm.jobs import JobRows
from chatserver.warm.manifests import Manifests
from chatserver.warm.memberships import Memberships
from chatserver.warm.messages import MessageRepository
from chatserver.warm.moderation import Moderation as ModerationRows
from chatserver.warm.patterns import MessagePatterns
from chatserver.warm.personal import PersonalRows
from chatserver.warm.push_subscriptions import PushSubscriptions
from chatserver.warm.quiet import QuietChats
from chatserver.warm.removal import Keeping
from chatserver.warm.restored import RestoredRows
from chatserver.warm.returning import RemovedItems
from chatserver.warm.schema import KnownSchema, watch_schema
from chatserver.warm.shardlist import ShardList
from chatserver.warm.social_graph import SocialGraph
from chatserver.warm.social_likes import SocialLikes
from chatserver.warm.social_posts import SocialPosts
from chatserver.warm.social_profiles import SocialProfiles
from chatserver.warm.social_timelines import SocialTimelines
from chatserver.warm.streamrows import StreamRows
from chatserver.warm.summaries import Summaries
from workers.archiver import Archiver
from workers.removals import Judge, Removals


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerParts:
    """What workers work with."""

    settings: Settings
    clock: Clock
    check_tables: Callable[[], Awaitable[None]]  # see `require_tables`
    hot: HotClient
    postman: Postman
    inboxes: Inboxes
    audiences: Audiences
    settling: Settling
    messages: MessageRepository
    bodies: LongBodies
    body_files: BodyFiles
    older: OlderTiers
    manifests: Manifests
    archiver: Archiver
    removals: Removals
    stream_rows: StreamRows
    restored: RestoredRows
    message_changes: MessageChanges
    shards: ShardList
    holds: Holds
    patterns: MessagePatterns
    directory: Directory
    opener: Opener
    invitations: Invitations
    key_fetcher: KeyFetcher
    hot_membership: HotMembership
    membership: Membership
    memberships: Memberships
    turnover: Turnover
    subscriptions: PushSubscriptions
    quiet: QuietChats
    files: Attachments
    objects: Files
    sendable: SendableFiles
    media_jobs: MediaJobs
    references: References
    outbound: Outbound
    moderation: Moderation
    hook_feed: HookFeed
    summaries: Summaries
    talks: Talks
    companion_sessions: CompanionSessions
    private: PrivateParts
    social: SocialParts
    busy: BusyChats = dataclasses.field(default_factory=BusyChats)


@dataclasses.dataclass(frozen=True, slots=True)
class SocialParts:
    """The rows of the social graph, and who tells devices of posts."""

    profiles: SocialProfiles
    graph: SocialGraph
    posts: SocialPosts
    likes: SocialLikes
    timelines: SocialTimelines
    fanouts: Fanouts
    poster: Poster


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateParts:
    """What exports and erasures work with, besides."""

    jobs: JobRows
    rows: PersonalRows
    accounts: AccountRows
    blocks: ModerationRows
    exports: ExportFiles
    traces: Traces
    answers: Answers
    closing: Closing
    eraser: TextEraser
    said: Said


@contextlib.asynccontextmanager
async def open_worker_parts(settings: Settings) -> AsyncIterator[WorkerParts]:
    """Connect to Redis and DynamoDB. DynamoDB may be down.

    Raises:
        ConfigError: a setting is wrong.
        Unavailable: Redis does not answer.
    """
    clock = SystemClock()
    async with (
        open_hot(settings.redis) as hot,
        open_dynamodb(settings.warm) as dynamodb,
        keep_account(dynamodb.meter.purse, Spendings(hot), clock),
        watch_schema(dynamodb.for_feature("schema"), settings.warm, "worker", clock),
        open_s3(settings.cold) as store,
        open_outbound(settings.outbound) as outbound,
    ):
        keeping, body_files = Keeping.by(settings.archive), BodyFiles(store)
        shards = ShardList(dynamodb.for_feature("persist"), settings.warm, clock)
        bodies = LongBodies(
            dynamodb.for_feature("persist"), settings.warm, body_files, clock, shards
        )
        messages = MessageRepository(
            dynamodb.for_feature("persist"), settings.warm, clock, shards, keeping, bodies
        )
        manifests = Manifests(dynamodb.for_feature("archive"), settings.warm)
        restored = RestoredRows(dynamodb.for_feature("archive"), settings.warm)
        segments = SegmentObjects(store, settings.archive)
        aged = AgedMessages(dynamodb.for_feature("archive"), settings.warm, clock, shards, bodies)
        reads = dynamodb.for_feature("history")
        cold = ColdLog(
            Manifests(reads, settings.warm),
            segments,
            AgedMessages(reads, settings.warm, clock, shards, bodies),
            clock,
        )
        older = OlderTiers(
            MessageRepository(reads, settings.warm, shards=shards, bodies=bodies), cold
        )
        directory = Directory(dynamodb.for_feature("directory"), settings.warm)
        inboxes, postman = Inboxes(hot), Postman(hot)
        settling = Settling(hot, postman)
        bounds = settings.chats.members_max, settings.chats.fanout_members_max
        revoking = Revoking(
            AccountRows(dynamodb.for_feature("accounts"), settings.warm),
            Revocations(hot, settings.auth.token_s_max),
            SessionEnder(hot, postman),
            settings.auth,
            clock,
        )
        rows, blocks = (
            ModerationRows(dynamodb.for_feature("moderation"), settings.warm),
            Blocks(hot),
        )
        apart = Apartness(rows, blocks)
        talks = make_talks(dynamodb.for_feature("companions"), settings.warm, directory, clock)
        invitations = make_invitations(
            settings, clock, hot, dynamodb, directory, lambda chat: opener.load_chat(chat)
        )
        files, sendable = (
            Attachments(dynamodb.for_feature("media"), settings.warm),
            SendableFiles(hot),
        )
        holds = Holds(dynamodb.for_feature("moderation"), settings.warm)
        references = References(files, sendable, clock)
        message_changes = MessageChanges(
            dynamodb.for_feature("persist"),
            settings.warm,
            references.release,
            cold,
            holds,
            shards,
            keeping,
            clock,
            bodies,
        )
        opener = Opener(
            directory,
            older,
            Opening(hot),
            inboxes,
            clock,
            Hidden(hot),
            *bounds,
            restore_revoked=revoking.restore,
            apart=apart,
            revive=talks.opener.revive,
            invitations=invitations,
            changes=message_changes,
        )
        audiences = Audiences(hot, opener.load_chat)
        memberships, hot_membership = (
            Memberships(dynamodb.for_feature("membership"), settings.warm),
            HotMembership(hot),
        )
        nobody = GatewayId("-")  # a worker has no sessions and no mailbox
        former = FormerMembers(memberships, ChatLog(hot), older, Hidden(hot), clock)
        turnover = Turnover(
            memberships,
            hot_membership,
            inboxes,
            audiences,
            settling,
            opener.load_chat,
            Poster(postman, nobody),
            Watchers(hot, nobody, settings.gateway.online_ttl_s),
            former,
        )
        hook_feed = HookFeed(hot, settings.webhooks)
        yield WorkerParts(
            settings=settings,
            clock=clock,
            check_tables=functools.partial(
                require_tables, dynamodb.for_feature("operations"), settings.warm
            ),
            hot=hot,
            postman=postman,
            inboxes=inboxes,
            audiences=audiences,
            settling=settling,
            messages=messages,
            bodies=bodies,
            body_files=body_files,
            older=older,
            manifests=manifests,
            archiver=Archiver(
                manifests,
                segments,
                aged,
                settings.archive,
                clock,
                restored,
                KnownSchema(dynamodb.for_feature("archive"), settings.warm, clock).reads_ttl,
            ),
            removals=Removals(
                Judge(manifests, segments, clock),
                manifests,
                aged,
                RemovedItems(dynamodb.for_feature("archive"), settings.warm, bodies),
                message_changes,
                older,
                clock,
                settings.persist.write_timeout_s,
            ),
            stream_rows=StreamRows(
                dynamodb.for_feature("archive"), settings.warm, settings.archive.lease_s
            ),
            message_changes=message_changes,
            restored=restored,
            shards=shards,
            holds=holds,
            patterns=MessagePatterns(
                dynamodb.for_feature("patterns"), settings.warm, clock, shards, bodies
            ),
            directory=directory,
            opener=opener,
            invitations=invitations,
            key_fetcher=KeyFetcher(
                settings.auth,
                KeySets(hot),
                functools.partial(fetch_document, outbound),
                functools.partial(parse_jwks, algorithm=settings.auth.host_algorithm),
                clock,
            ),
            hot_membership=hot_membership,
            membership=Membership(
                memberships,
                hot_membership,
                turnover,
                *bounds,
                apart=apart,
                clock=clock,
                invitations=invitations,
                former=former,
            ),
            memberships=memberships,
            turnover=turnover,
            subscriptions=PushSubscriptions(
                dynamodb.for_feature("push"), settings.warm, settings.notify.subscriptions_max
            ),
            quiet=QuietChats(dynamodb.for_feature("push"), settings.warm),
            files=files,
            objects=Files(store),
            sendable=sendable,
            media_jobs=MediaJobs(hot),
            references=references,
            outbound=outbound,
            moderation=Moderation(
                rows,
                directory,
                memberships,
                hot_membership,
                turnover,
                blocks,
                MemberCheck(hot, audiences, memberships),
                inboxes,
                Poster(postman, nobody),
                hook_feed.feed,
                clock,
                SocialGraph(dynamodb.for_feature("social"), settings.warm),
            ),
            talks=talks,
            companion_sessions=CompanionSessions(
                talks.rows,
                talks.personas,
                talks.book,
                opener,
                hot_membership,
                turnover,
                inboxes,
                Poster(postman, nobody),
                clock,
            ),
            hook_feed=hook_feed,
            summaries=Summaries(dynamodb.for_feature("companions"), settings.warm),
            private=_make_private(
                settings,
                clock,
                hot,
                dynamodb,
                store,
                postman,
                audiences,
                PersonalRows(dynamodb.for_feature("privacy"), settings.warm, shards, bodies),
                Said(
                    PersonalRows(dynamodb.for_feature("privacy"), settings.warm, shards, bodies),
                    manifests,
                    cold,
                ),
            ),
            social=_make_social(settings, dynamodb.for_feature("social"), Poster(postman, nobody)),
        )


def _make_social(settings: Settings, client: DynamoClient, poster: Poster) -> SocialParts:
    return SocialParts(
        profiles=SocialProfiles(client, settings.warm),
        graph=SocialGraph(client, settings.warm),
        posts=SocialPosts(client, settings.warm),
        likes=SocialLikes(client, settings.warm),
        timelines=SocialTimelines(client, settings.warm),
        fanouts=Fanouts(client, settings.warm),
        poster=poster,
    )


def _make_private(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    dynamodb: DynamoClient,
    store: ObjectStore,
    postman: Postman,
    audiences: Audiences,
    rows: PersonalRows,
    said: Said,
) -> PrivateParts:
    accounts, traces = AccountRows(dynamodb.for_feature("accounts"), settings.warm), Traces(hot)
    system = UserId(settings.api.system_user)
    return PrivateParts(
        jobs=JobRows(dynamodb.for_feature("privacy"), settings.warm),
        rows=rows,
        accounts=accounts,
        blocks=ModerationRows(dynamodb.for_feature("moderation"), settings.warm),
        exports=ExportFiles(store),
        traces=traces,
        answers=Answers(hot),
        closing=Closing(
            accounts,
            Revocations(hot, settings.auth.token_s_max),
            SessionEnder(hot, postman),
            traces,
            clock,
        ),
        eraser=TextEraser(Amendments(hot, GatewayId("-")), audiences, said, system),
        said=said,
    )
