"""Dependencies of every server process: Redis adapters and the use cases on top of them."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any, Self, TypeVar, cast

from chatserver.config import Settings
from chatserver.container import feature_ports
from chatserver.container.feature_ports import Port
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.features.registry import Feature, list_features, load
from chatserver.hot.bus.gateway_stream import GatewayStreamWriter
from chatserver.hot.chats.answered_direct_chats import AnsweredDirectChats
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.fan_out_completion import UndeliveredChats
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.chats.membership import HotMembership, MemberCheck, PeriodSource
from chatserver.hot.chats.message_changes import HiddenMessages, MessageChangeCommitter
from chatserver.hot.chats.unread_counts import UnreadCounts
from chatserver.hot.jwks_cache import JwksCache
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.blocks import HotBlocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.presence_states import LAST_SEEN_TTL_S, PresenceStates
from chatserver.hot.users.revocations import Revocations
from chatserver.hot.users.token_buckets import OF_ADDRESS, Kind, RateLimits
from chatserver.protocol.redis_memory_costs import Charge
from chatserver.service.chats.read_marks import ReadMarks
from chatserver.service.chats.typing_signals import TypingSignals
from chatserver.service.chats.user_chats import ChatDirectory, UserChats
from chatserver.service.history.history_pages import HistoryPages, WarmHistory
from chatserver.service.history.reader_views import ReaderViews
from chatserver.service.messaging.device_delivery import DeviceDelivery
from chatserver.service.messaging.message_changes import MessageChangeService
from chatserver.service.messaging.message_sender import MessageSender
from chatserver.service.presence.subscriptions import SUBSCRIBED_USERS_MAX, PresenceSubscriptions

T = TypeVar("T")


class CoreContainer(abc.ABC):
    """Dependencies of every server process. Subclasses implement access to the warm tier."""

    limit_kinds: Collection[Kind] = OF_ADDRESS

    def __init__(
        self, *, settings: Settings, clock: Clock, hot: HotClient, gateway: GatewayId
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.hot = hot
        self.gateway = gateway
        self._created: dict[Callable[[Self], Any], Any] = {}
        self.gateway_stream_writer = GatewayStreamWriter(hot)
        self.inboxes = Inboxes(hot)
        self.chat_log = ChatLog(hot)
        self.unread_counts = UnreadCounts(hot, lambda chat: self.audiences.get(chat))
        self.hidden_messages = HiddenMessages(hot)
        self.change_committer = MessageChangeCommitter(hot, gateway)
        self.hot_membership = HotMembership(hot)
        self.blocks = HotBlocks(hot)
        self.key_sets = JwksCache(hot)
        self.revocations = Revocations(hot, settings.auth.token_s_max)
        self.limits = RateLimits(hot, settings.limits, self.limit_kinds)
        self.undelivered_chats = UndeliveredChats(hot, self.gateway_stream_writer)
        self.large_chat_subscriptions = LargeChatSubscriptions(
            hot, gateway, settings.gateway.online_ttl_s
        )
        self.presence_states = PresenceStates(
            hot=hot,
            gateway=gateway,
            online_ttl_s=settings.gateway.online_ttl_s,
            keep_s=LAST_SEEN_TTL_S,
        )

    def get(self, kind: Callable[[Self], T]) -> T:
        """Return a feature's container, created on first use."""
        if kind not in self._created:
            self._created[kind] = kind(self)
        return cast("T", self._created[kind])

    def create_all(self) -> None:
        """Create every dependency at startup, to detect wrong settings before the first request."""
        for kind in type(self).__mro__:
            for name, value in vars(kind).items():
                if isinstance(value, cached_property):
                    getattr(self, name)

    def get_port(self, port: Port[T]) -> T:
        """Return an installed feature's implementation of a port, or the port's default."""
        for feature in list_features():
            if (path := self._find_provider(feature, port.name)) is not None:
                return cast("T", load(path)(self))
        return port.default

    @abc.abstractmethod
    def _find_provider(self, feature: Feature, port: str) -> str | None: ...

    @property
    @abc.abstractmethod
    def charge(self) -> Charge:
        """Charges a user for Redis memory."""

    @property
    @abc.abstractmethod
    def device_delivery(self) -> DeviceDelivery:
        """Sends events and signals (typing, presence) to devices."""

    @property
    @abc.abstractmethod
    def chat_directory(self) -> ChatDirectory:
        """Creates chats in the warm tier."""

    @property
    @abc.abstractmethod
    def warm_history(self) -> WarmHistory:
        """Reads messages that are no longer in Redis."""

    @property
    @abc.abstractmethod
    def earlier_periods(self) -> PeriodSource:
        """Reads the seq ranges of users' earlier memberships, which they can still read."""

    @abc.abstractmethod
    async def load_chat(self, chat: ChatId) -> None:
        """Load a chat from the warm tier into Redis. Raises NotFound, Unavailable."""

    @abc.abstractmethod
    async def load_user(self, user: UserId) -> None:
        """Load the user's state from the warm tier into Redis. Raises Unavailable."""

    @cached_property
    def audiences(self) -> Audiences:
        return Audiences(self.hot, self.load_chat, self.charge)

    # Use cases

    @cached_property
    def members(self) -> MemberCheck:
        return MemberCheck(self.hot, self.audiences, self.earlier_periods)

    @cached_property
    def views(self) -> ReaderViews:
        return ReaderViews(self.chat_log, self.hidden_messages, self.members)

    @cached_property
    def history(self) -> HistoryPages:
        return HistoryPages(
            log=self.chat_log,
            older=self.warm_history,
            members=self.members,
            clock=self.clock,
            views=self.views,
            pages=self.settings.chats.page_bounds,
        )

    @cached_property
    def chats(self) -> UserChats:
        return UserChats(
            inboxes=self.inboxes,
            audiences=self.audiences,
            log=self.chat_log,
            unread_counts=self.unread_counts,
            older=self.warm_history,
            directory=self.chat_directory,
            load_user=self.load_user,
            devices=self.device_delivery,
            clock=self.clock,
            views=self.views,
            pages=self.settings.chats.page_bounds,
            charge=self.charge,
        )

    @cached_property
    def read_marks(self) -> ReadMarks:
        return ReadMarks(
            inboxes=self.inboxes,
            audiences=self.audiences,
            load_user=self.load_user,
            devices=self.device_delivery,
            blocks=self.blocks,
            charge=self.charge,
        )

    @cached_property
    def typing_signals(self) -> TypingSignals:
        return TypingSignals(
            inboxes=self.inboxes,
            audiences=self.audiences,
            devices=self.device_delivery,
            large_chats=self.large_chat_subscriptions,
            blocks=self.blocks,
        )

    @cached_property
    def messaging(self) -> MessageSender:
        return MessageSender(
            make_commits=functools.partial(PartitionedCommit, self.hot, self.gateway),
            audiences=self.audiences,
            inboxes=self.inboxes,
            undelivered=self.undelivered_chats,
            devices=self.device_delivery,
            large_chats=self.large_chat_subscriptions,
            clock=self.clock,
            body_bounds=self.settings.chats.body_bounds,
            charge=self.charge,
            send_interceptor=self.get_port(feature_ports.SEND_INTERCEPTOR),
        )

    @cached_property
    def check_edit(self) -> feature_ports.CheckEdit | None:
        return self.get_port(feature_ports.CHECK_EDIT)

    @cached_property
    def check_companion_send(self) -> feature_ports.CheckSend:
        return self.get_port(feature_ports.CHECK_COMPANION_SEND)

    @cached_property
    def resolve_files(self) -> feature_ports.ResolveFiles:
        return self.get_port(feature_ports.RESOLVE_FILES)

    @cached_property
    def message_change_service(self) -> MessageChangeService:
        return MessageChangeService(
            commits=self.change_committer,
            hidden=self.hidden_messages,
            audiences=self.audiences,
            log=self.chat_log,
            warm=self.warm_history,
            messaging=self.messaging,
            devices=self.device_delivery,
            body_bounds=self.settings.chats.body_bounds,
            charge=self.charge,
            members=self.members,
        )

    @cached_property
    def presence_subscriptions(self) -> PresenceSubscriptions:
        return PresenceSubscriptions(
            states=self.presence_states,
            inboxes=self.inboxes,
            load_chat=self.audiences.get,
            users_max=SUBSCRIBED_USERS_MAX,
            clock=self.clock,
            blocks=self.blocks,
            direct_chats=AnsweredDirectChats(self.hot, self.audiences.get),
        )
