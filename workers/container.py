"""Dependency wiring of the workers. That of the gateway is in `chatserver.container`.

The two are separate because a gateway process must not import the AWS client.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable

from chatserver.api.companion_container import CompanionRepositories, build_companions
from chatserver.api.invitation_container import make_invitations
from chatserver.auth.host_keys import parse_jwks
from chatserver.cold.archive import SegmentObjects
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.long_bodies import BodyFiles
from chatserver.config import Settings
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import SYSTEM_USER, GatewayId
from chatserver.domain.membership import GROUP_MEMBERS_MAX
from chatserver.features.accounts.warm import AccountRows
from chatserver.features.attachments.cold import Files
from chatserver.features.attachments.hot import MediaJobs, SendableFiles
from chatserver.features.attachments.service.references import References
from chatserver.features.attachments.warm import Attachments
from chatserver.features.companions.service.sessions import CompanionSessions
from chatserver.features.companions.warm.summaries import Summaries
from chatserver.features.privacy.cold import ExportFiles
from chatserver.features.privacy.hot import RedisUserData
from chatserver.features.privacy.service import Lockout
from chatserver.features.privacy.warm.jobs import JobRows
from chatserver.features.privacy.warm.user_data import PersonalRows
from chatserver.features.push.model import SUBSCRIPTIONS_MAX
from chatserver.features.push.warm.muted_chats import MutedChats
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.features.social.warm.fanouts import Fanouts
from chatserver.features.social.warm.graph import SocialGraph
from chatserver.features.social.warm.likes import SocialLikes
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.features.social.warm.profiles import SocialProfiles
from chatserver.features.social.warm.timelines import SocialTimelines
from chatserver.features.webhooks.hot import WebhookEvents
from chatserver.hot.bus.idempotent_answers import Answers
from chatserver.hot.bus.mailbox import MailboxWriter
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.amendments import Amendments, Hidden
from chatserver.hot.chats.audiences import Audiences
from chatserver.hot.chats.chat_loader import HotChatLoader
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.large_chats import LargeChatSubscriptions
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.hot.chats.undelivered import UndeliveredChats
from chatserver.hot.key_sets import KeySets
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.blocks import Blocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.revocations import Revocations, SessionEnder
from chatserver.operations.cost.hot import UsageTotals
from chatserver.operations.cost.recorder import record_usage
from chatserver.operations.doctor.dynamodb_checks import require_tables
from chatserver.outbound.document_fetch import fetch_document
from chatserver.outbound.http_client import Outbound, open_outbound
from chatserver.service.access.host_keyring import KeyFetcher
from chatserver.service.access.revocation import Revoking
from chatserver.service.chats.chat_creator import ChatCreator
from chatserver.service.chats.chat_loader import ChatLoader
from chatserver.service.chats.user_loader import UserLoader
from chatserver.service.history.cold_log import ColdLog
from chatserver.service.history.older_tiers import OlderTiers
from chatserver.service.history.user_messages import UserMessages
from chatserver.service.membership.former_members import FormerMembers
from chatserver.service.membership.invitations import Invitations
from chatserver.service.membership.propagation import MembershipPropagation
from chatserver.service.membership.service import Membership
from chatserver.service.messaging.message_erasure import TextEraser
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.service.moderation.service import Moderation
from chatserver.telemetry.process_stats import BusyChats
from chatserver.warm.archive.archivable_entries import ArchivableMessages
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.archive.restored_ranges import RestoredRows
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.legal_holds import Holds
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.chats.moderation import Moderation as ModerationRows
from chatserver.warm.dynamo.client import DynamoClient, open_dynamodb
from chatserver.warm.messages.long_bodies import LongBodies
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_queries import MessageIndexes
from chatserver.warm.messages.store import MessageRepository
from chatserver.warm.messages.ttl import ItemRetention
from chatserver.warm.messages.ttl_undo import RemovedItems
from chatserver.warm.messages.write_shards import ShardList
from chatserver.warm.schema.active_version import watch_schema
from chatserver.warm.streams.checkpoints import StreamRows
from workers.archive import LEASE_S
from workers.archive.archiver import Archiver
from workers.archive.ttl_removals import RemovalCheck, RemovalHandler


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerContainer:
    """Dependencies of the workers."""

    settings: Settings
    clock: Clock
    check_tables: Callable[[], Awaitable[None]]  # see `require_tables`
    hot: HotClient
    postman: MailboxWriter
    inboxes: Inboxes
    audiences: Audiences
    settling: UndeliveredChats
    messages: MessageRepository
    bodies: LongBodies
    body_files: BodyFiles
    older: OlderTiers
    manifests: Manifests
    archiver: Archiver
    removals: RemovalHandler
    stream_rows: StreamRows
    restored: RestoredRows
    message_changes: MessageChanges
    shards: ShardList
    holds: Holds
    patterns: MessageIndexes
    directory: Directory
    opener: ChatLoader
    user_loader: UserLoader
    chat_creator: ChatCreator
    invitations: Invitations
    key_fetcher: KeyFetcher
    hot_membership: HotMembership
    membership: Membership
    memberships: Memberships
    turnover: MembershipPropagation
    subscriptions: PushSubscriptions
    muted_chats: MutedChats
    files: Attachments
    objects: Files
    sendable: SendableFiles
    media_jobs: MediaJobs
    references: References
    outbound: Outbound
    moderation: Moderation
    webhook_events: WebhookEvents
    summaries: Summaries
    companions: CompanionRepositories
    companion_sessions: CompanionSessions
    private: PrivacyContainer
    social: SocialRepositories
    busy: BusyChats = dataclasses.field(default_factory=BusyChats)


@dataclasses.dataclass(frozen=True, slots=True)
class SocialRepositories:
    """Rows of the social graph, and the poster that notifies devices of posts."""

    profiles: SocialProfiles
    graph: SocialGraph
    posts: SocialPosts
    likes: SocialLikes
    timelines: SocialTimelines
    fanouts: Fanouts
    poster: RemoteDelivery


@dataclasses.dataclass(frozen=True, slots=True)
class PrivacyContainer:
    """Additional dependencies of exports and erasures."""

    jobs: JobRows
    rows: PersonalRows
    accounts: AccountRows
    blocks: ModerationRows
    exports: ExportFiles
    traces: RedisUserData
    answers: Answers
    closing: Lockout
    eraser: TextEraser
    said: UserMessages


@contextlib.asynccontextmanager
async def open_worker_parts(settings: Settings) -> AsyncIterator[WorkerContainer]:
    """Connect to Redis and DynamoDB, and build the dependencies. DynamoDB may be down.

    Raises:
        ConfigError: a setting is wrong.
        Unavailable: Redis does not answer.
    """
    clock = SystemClock()
    async with (
        open_hot(settings.redis) as hot,
        open_dynamodb(settings.warm) as dynamodb,
        record_usage(dynamodb.meter.purse, UsageTotals(hot), clock),
        watch_schema(dynamodb.for_feature("schema"), settings.warm, "worker", clock),
        open_s3(settings.cold) as store,
        open_outbound(settings.outbound) as outbound,
    ):
        keeping, body_files = ItemRetention.by(settings.archive), BodyFiles(store)
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
        aged = ArchivableMessages(
            dynamodb.for_feature("archive"), settings.warm, clock, shards, bodies
        )
        reads = dynamodb.for_feature("history")
        cold = ColdLog(
            manifests=Manifests(reads, settings.warm),
            segments=segments,
            items=ArchivableMessages(reads, settings.warm, clock, shards, bodies),
            clock=clock,
        )
        older = OlderTiers(
            MessageRepository(reads, settings.warm, shards=shards, bodies=bodies), cold
        )
        directory = Directory(dynamodb.for_feature("directory"), settings.warm)
        inboxes, postman = Inboxes(hot), MailboxWriter(hot)
        settling = UndeliveredChats(hot, postman)
        revoking = Revoking(
            accounts=AccountRows(dynamodb.for_feature("accounts"), settings.warm),
            revocations=Revocations(hot, settings.auth.token_s_max),
            session_ender=SessionEnder(hot, postman),
            settings=settings.auth,
            clock=clock,
        )
        rows, blocks = (
            ModerationRows(dynamodb.for_feature("moderation"), settings.warm),
            Blocks(hot),
        )
        apart = BlockPolicy(rows, blocks)
        companions = build_companions(
            dynamodb.for_feature("companions"), settings.warm, directory, clock
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
        opener = ChatLoader(
            directory=directory,
            messages=older,
            changes=message_changes,
            hot=HotChatLoader(hot),
            clock=clock,
            revive=companions.session_opener.create_missing_chat,
        )
        user_loader = UserLoader(
            directory=directory,
            hot=HotChatLoader(hot),
            inboxes=inboxes,
            hidden=Hidden(hot),
            block_policy=apart,
            clock=clock,
            restore_revoked=revoking.restore,
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
        audiences = Audiences(hot, opener.load_chat)
        memberships, hot_membership = (
            Memberships(dynamodb.for_feature("membership"), settings.warm),
            HotMembership(hot),
        )
        nobody = GatewayId("-")  # a worker has no sessions and no mailbox
        former = FormerMembers(
            memberships=memberships,
            log=ChatLog(hot),
            older=older,
            hidden=Hidden(hot),
            clock=clock,
        )
        turnover = MembershipPropagation(
            memberships=memberships,
            hot_membership=hot_membership,
            inboxes=inboxes,
            audiences=audiences,
            undelivered=settling,
            load_chat=opener.load_chat,
            devices=RemoteDelivery(postman, nobody),
            large_chats=LargeChatSubscriptions(hot, nobody, settings.gateway.online_ttl_s),
            former_members=former,
        )
        webhook_events = WebhookEvents(hot, settings.webhooks)
        yield WorkerContainer(
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
            ),
            removals=RemovalHandler(
                RemovalCheck(manifests, segments, clock),
                manifests,
                aged,
                RemovedItems(dynamodb.for_feature("archive"), settings.warm, bodies),
                message_changes,
                older,
                clock,
                settings.persist.write_timeout_s,
            ),
            stream_rows=StreamRows(dynamodb.for_feature("archive"), settings.warm, LEASE_S),
            message_changes=message_changes,
            restored=restored,
            shards=shards,
            holds=holds,
            patterns=MessageIndexes(
                dynamodb.for_feature("patterns"), settings.warm, clock, shards, bodies
            ),
            directory=directory,
            opener=opener,
            user_loader=user_loader,
            chat_creator=chat_creator,
            invitations=invitations,
            key_fetcher=KeyFetcher(
                settings=settings.auth,
                cache=KeySets(hot),
                fetch=functools.partial(fetch_document, outbound),
                check=functools.partial(parse_jwks, algorithm=settings.auth.host_algorithm),
                clock=clock,
            ),
            hot_membership=hot_membership,
            membership=Membership(
                memberships=memberships,
                hot_membership=hot_membership,
                propagation=turnover,
                former_members=former,
                members_max=GROUP_MEMBERS_MAX,
                fanout_members_max=settings.chats.fanout_members_max,
                block_policy=apart,
                invitations=invitations,
                clock=clock,
            ),
            memberships=memberships,
            turnover=turnover,
            subscriptions=PushSubscriptions(
                dynamodb.for_feature("push"), settings.warm, SUBSCRIPTIONS_MAX
            ),
            muted_chats=MutedChats(dynamodb.for_feature("push"), settings.warm),
            files=files,
            objects=Files(store),
            sendable=sendable,
            media_jobs=MediaJobs(hot),
            references=references,
            outbound=outbound,
            moderation=Moderation(
                rows=rows,
                directory=directory,
                memberships=memberships,
                hot_membership=hot_membership,
                propagation=turnover,
                blocks=blocks,
                members=MemberCheck(hot, audiences, memberships),
                inboxes=inboxes,
                devices=RemoteDelivery(postman, nobody),
                publish_event=webhook_events.publish,
                clock=clock,
                follows=SocialGraph(dynamodb.for_feature("social"), settings.warm),
            ),
            companions=companions,
            companion_sessions=CompanionSessions(
                rows=companions.session_rows,
                companions=companions.companion_rows,
                catalog=companions.catalog,
                chat_creator=chat_creator,
                change_records=hot_membership,
                propagation=turnover,
                inboxes=inboxes,
                delivery=RemoteDelivery(postman, nobody),
                clock=clock,
            ),
            webhook_events=webhook_events,
            summaries=Summaries(dynamodb.for_feature("companions"), settings.warm),
            private=_make_private(
                settings,
                clock,
                hot,
                dynamodb,
                store,
                postman,
                audiences,
                PersonalRows(
                    client=dynamodb.for_feature("privacy"),
                    settings=settings.warm,
                    shards=shards,
                    bodies=bodies,
                ),
                UserMessages(
                    PersonalRows(
                        client=dynamodb.for_feature("privacy"),
                        settings=settings.warm,
                        shards=shards,
                        bodies=bodies,
                    ),
                    manifests,
                    cold,
                ),
            ),
            social=_make_social(
                settings, dynamodb.for_feature("social"), RemoteDelivery(postman, nobody)
            ),
        )


def _make_social(
    settings: Settings, client: DynamoClient, poster: RemoteDelivery
) -> SocialRepositories:
    return SocialRepositories(
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
    postman: MailboxWriter,
    audiences: Audiences,
    rows: PersonalRows,
    said: UserMessages,
) -> PrivacyContainer:
    accounts, traces = (
        AccountRows(dynamodb.for_feature("accounts"), settings.warm),
        RedisUserData(hot),
    )
    system = SYSTEM_USER
    return PrivacyContainer(
        jobs=JobRows(dynamodb.for_feature("privacy"), settings.warm),
        rows=rows,
        accounts=accounts,
        blocks=ModerationRows(dynamodb.for_feature("moderation"), settings.warm),
        exports=ExportFiles(store),
        traces=traces,
        answers=Answers(hot),
        closing=Lockout(
            rows=accounts,
            revocations=Revocations(hot, settings.auth.token_s_max),
            ender=SessionEnder(hot, postman),
            redis_data=traces,
            clock=clock,
        ),
        eraser=TextEraser(
            commits=Amendments(hot, GatewayId("-")),
            audiences=audiences,
            messages=said,
            system=system,
        ),
        said=said,
    )
