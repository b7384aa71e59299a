"""Where workers' use cases meet adapters; the gateway's place for that is `chatserver.app`.

Two places, because a gateway process must not import the AWS client.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator

from chatserver.auth.hostkeys import parse_jwks
from chatserver.cold.archive import SegmentObjects
from chatserver.cold.attachments import Files
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.cold.exports import ExportFiles
from chatserver.config import Settings
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import GatewayId, UserId
from chatserver.hot.amending import Amendments, Hidden
from chatserver.hot.answers import Answers
from chatserver.hot.audience import Audiences
from chatserver.hot.blocks import Blocks
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
from chatserver.hot.traces import Traces
from chatserver.hot.watchers import Watchers
from chatserver.outbound.documents import fetch_document
from chatserver.outbound.http import Outbound, open_outbound
from chatserver.service.apartness import Apartness
from chatserver.service.coldlog import ColdLog
from chatserver.service.erasing import TextEraser
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
from chatserver.warm.changes import MessageChanges
from chatserver.warm.client import DynamoClient, open_dynamodb
from chatserver.warm.directory import Directory
from chatserver.warm.jobs import JobRows
from chatserver.warm.manifests import Manifests
from chatserver.warm.memberships import Memberships
from chatserver.warm.messages import MessageRepository
from chatserver.warm.moderation import Moderation as ModerationRows
from chatserver.warm.personal import PersonalRows
from chatserver.warm.push_subscriptions import PushSubscriptions
from chatserver.warm.quiet import QuietChats
from chatserver.warm.schema import watch_schema
from workers.archiver import Archiver


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerParts:
    """What workers work with."""

    settings: Settings
    clock: Clock
    hot: HotClient
    postman: Postman
    inboxes: Inboxes
    audiences: Audiences
    settling: Settling
    messages: MessageRepository
    older: OlderTiers
    manifests: Manifests
    archiver: Archiver
    message_changes: MessageChanges
    directory: Directory
    opener: Opener
    key_fetcher: KeyFetcher
    hot_membership: HotMembership
    membership: Membership
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
    private: PrivateParts


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
    """Connect to Redis and DynamoDB.

    Raises:
        ConfigError: a setting does not allow it.
        Unavailable: there is no Redis.
    """
    clock = SystemClock()
    async with (
        open_hot(settings.redis) as hot,
        open_dynamodb(settings.warm) as dynamodb,
        watch_schema(dynamodb, settings.warm, "worker", clock),
        open_s3(settings.cold) as store,
        open_outbound(settings.outbound) as outbound,
    ):
        messages = MessageRepository(dynamodb, settings.warm)
        manifests = Manifests(dynamodb, settings.warm)
        segments = SegmentObjects(store, settings.archive)
        aged = AgedMessages(dynamodb, settings.warm, clock)
        cold = ColdLog(manifests, segments, aged, clock)
        older = OlderTiers(messages, cold)
        directory = Directory(dynamodb, settings.warm)
        inboxes, postman = Inboxes(hot), Postman(hot)
        settling = Settling(hot, postman)
        bounds = settings.chats.members_max, settings.chats.fanout_members_max
        revoking = Revoking(
            AccountRows(dynamodb, settings.warm),
            Revocations(hot, settings.auth.token_s_max),
            SessionEnder(hot, postman),
            settings.auth,
            clock,
        )
        rows, blocks = ModerationRows(dynamodb, settings.warm), Blocks(hot)
        apart = Apartness(rows, blocks)
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
        )
        audiences = Audiences(hot, opener.load_chat)
        memberships, hot_membership = Memberships(dynamodb, settings.warm), HotMembership(hot)
        nobody = GatewayId("-")  # a worker has no sessions and no mailbox
        turnover = Turnover(
            memberships,
            hot_membership,
            inboxes,
            audiences,
            settling,
            opener.load_chat,
            Poster(postman, nobody),
            Watchers(hot, nobody, settings.gateway.online_ttl_s),
        )
        files, sendable = Attachments(dynamodb, settings.warm), SendableFiles(hot)
        hook_feed = HookFeed(hot, settings.webhooks)
        references = References(files, sendable, clock)
        yield WorkerParts(
            settings=settings,
            clock=clock,
            hot=hot,
            postman=postman,
            inboxes=inboxes,
            audiences=audiences,
            settling=settling,
            messages=messages,
            older=older,
            manifests=manifests,
            archiver=Archiver(manifests, segments, aged, settings.archive, clock),
            message_changes=MessageChanges(dynamodb, settings.warm, references.release, cold),
            directory=directory,
            opener=opener,
            key_fetcher=KeyFetcher(
                settings.auth,
                KeySets(hot),
                functools.partial(fetch_document, outbound),
                functools.partial(parse_jwks, algorithm=settings.auth.host_algorithm),
                clock,
            ),
            hot_membership=hot_membership,
            membership=Membership(
                memberships, hot_membership, turnover, *bounds, apart=apart, clock=clock
            ),
            turnover=turnover,
            subscriptions=PushSubscriptions(
                dynamodb, settings.warm, settings.notify.subscriptions_max
            ),
            quiet=QuietChats(dynamodb, settings.warm),
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
                MemberCheck(hot, audiences),
                inboxes,
                Poster(postman, nobody),
                hook_feed.feed,
                clock,
            ),
            hook_feed=hook_feed,
            private=_make_private(
                settings,
                clock,
                hot,
                dynamodb,
                store,
                postman,
                audiences,
                Said(PersonalRows(dynamodb, settings.warm), manifests, cold),
            ),
        )


def _make_private(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    dynamodb: DynamoClient,
    store: ObjectStore,
    postman: Postman,
    audiences: Audiences,
    said: Said,
) -> PrivateParts:
    accounts, traces = AccountRows(dynamodb, settings.warm), Traces(hot)
    rows = PersonalRows(dynamodb, settings.warm)
    system = UserId(settings.api.system_user)
    return PrivateParts(
        jobs=JobRows(dynamodb, settings.warm),
        rows=rows,
        accounts=accounts,
        blocks=ModerationRows(dynamodb, settings.warm),
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
