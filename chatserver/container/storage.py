"""Dependencies of the API and the workers, which have DynamoDB and S3 clients.

The API is like a gateway without sessions: it commits through the same scripts, uses the same
fan-out, and notifies devices through their gateways' streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property

from chatserver.auth.access_tokens import Tokens
from chatserver.auth.host_keys import parse_jwks
from chatserver.auth.page_cursors import Cursors
from chatserver.cold.client import open_s3
from chatserver.config import Settings, check_secret
from chatserver.container import storage_feature_ports
from chatserver.container.repositories import Connections, Role, TierContainer
from chatserver.domain.clock import Clock
from chatserver.domain.ids import SYSTEM_USER, ChatId, UserId
from chatserver.domain.invitation_rules import INVITATIONS_PENDING_MAX
from chatserver.domain.membership_rules import GROUP_MEMBERS_MAX
from chatserver.features.registry import Feature
from chatserver.hot.bus.idempotent_responses import IdempotentResponses
from chatserver.hot.bus.remote_delivery import RemoteDelivery
from chatserver.hot.chats.answered_direct_chats import AnsweredDirectChats
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.users.daily_limits import DailyLimit
from chatserver.hot.users.group_quotas import GroupQuotas
from chatserver.hot.users.revocations import SessionEnder
from chatserver.hot.users.token_buckets import ALL_KINDS
from chatserver.operations.cost.hot import UsageTotals
from chatserver.operations.cost.usage_recorder import record_usage
from chatserver.outbound.http_client import fetch_document, open_outbound
from chatserver.protocol.redis_memory_costs import Charge, charge_nobody
from chatserver.service.access.api_keys import ApiKeys
from chatserver.service.access.host_keyring import HostKeyring, KeyFetcher
from chatserver.service.access.revocation import Revoker
from chatserver.service.access.token_authentication import TokenAuthentication
from chatserver.service.chats.chat_creator import ChatCreator
from chatserver.service.chats.chat_loader import ChatLoader
from chatserver.service.chats.user_loader import UserLoader
from chatserver.service.history.message_context import MessageContext
from chatserver.service.history.message_queries import MessageQueries
from chatserver.service.history.message_query_filter import QuerySources
from chatserver.service.history.messages_of_all_chats import MessagesOfAllChats
from chatserver.service.history.sent_and_received import SentAndReceived
from chatserver.service.membership.former_members import FormerMembers
from chatserver.service.membership.group_membership import GroupMembership
from chatserver.service.membership.invitations import FollowGraph, GroupInvitations
from chatserver.service.membership.membership_propagation import MembershipPropagation
from chatserver.service.messaging.stored_waits import STORED_POLL_S, STORED_TIMEOUT_S, StoredWaits
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.service.moderation.blocks_and_reports import BlocksAndReports, PublishEvent
from chatserver.service.moderation.retention_and_legal_holds import Retention
from chatserver.telemetry.process_stats import BusyChats
from chatserver.warm.api_keys import StoredApiKeys
from chatserver.warm.chats.stored_invitations import StoredInvitations
from chatserver.warm.chats.user_restrictions import UserRestrictions
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.encryption.data_keys import require_provider
from chatserver.warm.schema.active_version import watch_schema


class StorageContainer(TierContainer):
    """Use cases of the API and the workers.

    API requests count against the user's Redis memory budget; work done by workers does not.
    """

    limit_kinds = ALL_KINDS

    def __init__(
        self, *, role: Role, settings: Settings, clock: Clock, connections: Connections
    ) -> None:
        super().__init__(role=role, settings=settings, clock=clock, connections=connections)
        # Functions to call at shutdown, before the data stores are disconnected.
        self.closers: list[Callable[[], Awaitable[None]]] = []
        # Nobody may register the name of an admin who has no account yet.
        self.reserved_users = frozenset(
            {*settings.api.demo_users, SYSTEM_USER, *settings.auth.admins}
        )
        self.session_ender = SessionEnder(self.hot, self.gateway_stream_writer)
        self.api_keys = make_api_keys(self.dynamodb, settings, clock)
        self.block_policy = BlockPolicy(self.moderation_rows)
        self.hot_chat_writer = HotChatWriter(self.hot)
        self.idempotent_answers = IdempotentResponses(self.hot)
        self.busy_chats = BusyChats()

    def _find_provider(self, feature: Feature, port: str) -> str | None:
        return feature.ports.get(port)

    @property
    def charge(self) -> Charge:
        return self.limits.charge_memory if self.role == "api" else charge_nobody

    @cached_property
    def device_delivery(self) -> RemoteDelivery:
        return RemoteDelivery(self.gateway_stream_writer, self.gateway)

    @property
    def chat_directory(self) -> ChatCreator:
        return self.chat_creator

    async def load_chat(self, chat: ChatId) -> None:
        await self.chat_loader.load_chat(chat)

    async def load_user(self, user: UserId) -> None:
        await self.user_loader.load_user(user)

    # Ports that features implement

    @cached_property
    def follow_graph(self) -> FollowGraph:
        return self.get_port(storage_feature_ports.FOLLOW_GRAPH)

    @cached_property
    def publish_event(self) -> PublishEvent:
        return self.get_port(storage_feature_ports.PUBLISH_EVENT)

    @cached_property
    def publish_entries(self) -> storage_feature_ports.PublishEntries:
        return self.get_port(storage_feature_ports.PUBLISH_ENTRIES)

    @cached_property
    def record_files(self) -> storage_feature_ports.RecordFiles:
        return self.get_port(storage_feature_ports.RECORD_FILES)

    @cached_property
    def record_pending(self) -> storage_feature_ports.RecordPending:
        return self.get_port(storage_feature_ports.RECORD_PENDING)

    @cached_property
    def load_file(self) -> storage_feature_ports.LoadFile:
        return self.get_port(storage_feature_ports.LOAD_FILE)

    # Access

    @cached_property
    def tokens(self) -> Tokens:
        return Tokens(self.settings.auth, self.clock)

    @cached_property
    def key_fetcher(self) -> KeyFetcher:
        auth = self.settings.auth
        return KeyFetcher(
            settings=auth,
            cache=self.key_sets,
            fetch=functools.partial(fetch_document, self.outbound),
            check=functools.partial(parse_jwks, algorithm=auth.host_algorithm),
            clock=self.clock,
        )

    @cached_property
    def host_keys(self) -> HostKeyring:
        return HostKeyring(
            settings=self.settings.auth,
            cache=self.key_sets,
            fetch=self.key_fetcher.get,
            activate=self.tokens.replace_key_set,
            clock=self.clock,
        )

    @cached_property
    def authentication(self) -> TokenAuthentication:
        return TokenAuthentication(self.tokens, self.revocations, self.host_keys)

    @cached_property
    def revocation(self) -> Revoker:
        return Revoker(
            accounts=self.login_rows,
            revocations=self.revocations,
            session_ender=self.session_ender,
            settings=self.settings.auth,
            clock=self.clock,
            push_devices=self.get_port(storage_feature_ports.PUSH_DEVICES),
        )

    # Chats and memberships

    @cached_property
    def invitations(self) -> GroupInvitations:
        chats = self.settings.chats
        return GroupInvitations(
            rows=StoredInvitations(self.dynamodb.for_feature("membership")),
            follows=self.follow_graph,
            direct_chats=AnsweredDirectChats(
                self.hot, self.load_chat, self.directory.find_existing
            ),
            quotas=GroupQuotas(self.hot),
            contacts=DailyLimit(self.hot, "contacts", chats.new_contacts_per_day),
            inboxes=self.inboxes,
            devices=self.device_delivery,
            policy=chats.invitations,
            pending_max=INVITATIONS_PENDING_MAX,
            chats_max=chats.per_user_max,
            clock=self.clock,
        )

    @cached_property
    def chat_loader(self) -> ChatLoader:
        return ChatLoader(
            directory=self.directory,
            messages=self.older_tiers,
            changes=self.message_changes,
            hot=self.hot_chat_writer,
            inboxes=self.inboxes,
            member_states=self.member_state,
            hidden=self.hidden_messages,
            clock=self.clock,
            revive=self.get_port(storage_feature_ports.REVIVE_SESSION),
        )

    @cached_property
    def user_loader(self) -> UserLoader:
        return UserLoader(
            directory=self.directory,
            hot=self.hot_chat_writer,
            inboxes=self.inboxes,
            hidden=self.hidden_messages,
            restrictions=UserRestrictions(
                self.dynamodb.for_feature("directory"), self.moderation_rows
            ),
            blocks=self.blocks,
            clock=self.clock,
            restore_revoked=self.revocation.restore,
        )

    @cached_property
    def chat_creator(self) -> ChatCreator:
        return ChatCreator(
            directory=self.directory,
            loader=self.chat_loader,
            block_policy=self.block_policy,
            invitations=self.invitations,
            clock=self.clock,
            propagate=self.membership_propagation.finish,
            members_max=GROUP_MEMBERS_MAX,
            fanout_members_max=self.settings.chats.fanout_members_max,
        )

    @cached_property
    def former_members(self) -> FormerMembers:
        return FormerMembers(
            memberships=self.memberships,
            log=self.chat_log,
            older=self.older_tiers,
            hidden=self.hidden_messages,
            clock=self.clock,
        )

    @cached_property
    def membership_propagation(self) -> MembershipPropagation:
        return MembershipPropagation(
            memberships=self.memberships,
            hot_membership=self.hot_membership,
            inboxes=self.inboxes,
            audiences=self.audiences,
            undelivered=self.undelivered_chats,
            load_chat=self.load_chat,
            devices=self.device_delivery,
            large_chats=self.large_chat_subscriptions,
            former_members=self.former_members,
        )

    @cached_property
    def membership(self) -> GroupMembership:
        return GroupMembership(
            memberships=self.memberships,
            hot_membership=self.hot_membership,
            propagation=self.membership_propagation,
            former_members=self.former_members,
            members_max=GROUP_MEMBERS_MAX,
            fanout_members_max=self.settings.chats.fanout_members_max,
            block_policy=self.block_policy,
            invitations=self.invitations,
            pictures=self.get_port(storage_feature_ports.GROUP_PICTURES),
            clock=self.clock,
        )

    @cached_property
    def moderation(self) -> BlocksAndReports:
        return BlocksAndReports(
            rows=self.moderation_rows,
            directory=self.directory,
            memberships=self.memberships,
            hot_membership=self.hot_membership,
            propagation=self.membership_propagation,
            blocks=self.blocks,
            members=self.members,
            inboxes=self.inboxes,
            devices=self.device_delivery,
            publish_event=self.publish_event,
            clock=self.clock,
            follows=self.follow_graph,
        )

    @cached_property
    def retention(self) -> Retention:
        return Retention(
            holds=self.holds,
            directory=self.directory,
            memberships=self.memberships,
            hot_membership=self.hot_membership,
            propagation=self.membership_propagation,
            membership=self.membership,
            inboxes=self.inboxes,
            devices=self.device_delivery,
            clock=self.clock,
        )

    # History

    @cached_property
    def message_queries(self) -> MessageQueries:
        return MessageQueries(
            sources=self._query_sources, members=self.members, users=self.user_positions
        )

    @cached_property
    def _query_sources(self) -> QuerySources:
        return QuerySources(
            messages=self.message_indexes,
            memberships=self.memberships,
            log=self.chat_log,
            older=self.older_tiers,
            cold=self.cold_log,
            views=self.views,
            clock=self.clock,
        )

    @cached_property
    def messages_of_all_chats(self) -> MessagesOfAllChats:
        return MessagesOfAllChats(
            chats=self.chats, days=self.active_days, sources=self._query_sources
        )

    @cached_property
    def sent_and_received(self) -> SentAndReceived:
        return SentAndReceived(self.message_queries, self.messages_of_all_chats)

    @cached_property
    def message_context(self) -> MessageContext:
        return MessageContext(
            history=self.history,
            members=self.members,
            log=self.chat_log,
            messages=self.message_indexes,
            cold=self.cold_log,
        )

    # HTTP

    @cached_property
    def cursors(self) -> Cursors:
        return Cursors(self.settings.auth.secret)

    @cached_property
    def stored_waits(self) -> StoredWaits:
        stored = StoredWaits(STORED_TIMEOUT_S, STORED_POLL_S)
        self.hot.on_epoch.append(stored.expire_all)
        return stored


def make_api_keys(dynamodb: DynamoClient, settings: Settings, clock: Clock) -> ApiKeys:
    """Create the API key use cases, for the container and `chatserver keys`."""
    return ApiKeys(StoredApiKeys(dynamodb.for_feature("accounts")), clock)


@contextlib.asynccontextmanager
async def open_storage_container(
    *, role: Role, settings: Settings, clock: Clock, hot: HotClient | None = None
) -> AsyncIterator[StorageContainer]:
    """Connect to Redis and yield the container. DynamoDB and S3 may be down.

    `hot` replaces the Redis connection and skips schema checks (for the OpenAPI generator).

    Raises:
        ConfigError: a setting prevents startup.
        Unavailable: Redis is unavailable.
    """
    if role == "api":
        check_secret(settings)
    async with contextlib.AsyncExitStack() as stack:
        needs_schema = hot is None
        if hot is None:
            hot = await stack.enter_async_context(open_hot(settings.redis))
        dynamodb = await stack.enter_async_context(open_dynamodb(settings.warm))
        if needs_schema:
            usage = record_usage(dynamodb.meter.usage, UsageTotals(hot), clock)
            await stack.enter_async_context(usage)
            schema = dynamodb.for_feature("schema")
            await stack.enter_async_context(watch_schema(schema, settings.warm, role, clock))
            await require_provider(schema)
        store = await stack.enter_async_context(open_s3(settings.cold))
        outbound = await stack.enter_async_context(open_outbound(settings.outbound))
        container = StorageContainer(
            role=role,
            settings=settings,
            clock=clock,
            connections=Connections(hot, dynamodb, store, outbound),
        )
        for fence in (dynamodb.fence, store.fence):
            hot.on_blocked.append(functools.partial(fence.set, "redis"))
        stack.push_async_callback(_close, container)
        if role == "api":
            container.create_all()
            keys = asyncio.create_task(container.host_keys.run(), name="host-keys")
            container.closers.append(functools.partial(_cancel, keys))
        yield container


async def _close(container: StorageContainer) -> None:
    await asyncio.gather(*(close() for close in container.closers), return_exceptions=True)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
