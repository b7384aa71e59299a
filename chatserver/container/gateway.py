"""Dependencies of a gateway process, which accesses the warm tier through workers."""

from __future__ import annotations

from functools import cached_property

from chatserver.auth.access_tokens import Tokens
from chatserver.config import Settings
from chatserver.container.core import CoreContainer
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.features.registry import Feature
from chatserver.hot.bus.gateway_stream import GatewayStream
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.presence_states import LAST_SEEN_TTL_S
from chatserver.hot.users.user_gateways import UserGateways
from chatserver.hot.users.user_sessions import UserSessions
from chatserver.protocol.redis_memory_costs import Charge
from chatserver.service.access.host_keyring import HostKeyring
from chatserver.service.access.token_authentication import TokenAuthentication
from chatserver.service.history.large_chat_log import LargeChatLog
from chatserver.service.history.sync import DeviceSync
from chatserver.service.presence.user_presence import UserPresence


class GatewayContainer(CoreContainer):
    """A gateway's use cases and adapters.

    The components that serve connections are in the subclass, because they are in a higher layer:
    `chatserver.gateway.process.wiring`.
    """

    def __init__(
        self, *, settings: Settings, clock: Clock, hot: HotClient, gateway: GatewayId
    ) -> None:
        super().__init__(settings=settings, clock=clock, hot=hot, gateway=gateway)
        self.warm = RpcClient(hot, gateway, settings.gateway.rpc_timeout_s)
        self.tokens = Tokens(settings.auth, clock)
        self.host_keys = HostKeyring(
            settings=settings.auth,
            cache=self.key_sets,
            fetch=self.warm.load_keys,
            activate=self.tokens.replace_key_set,
            clock=clock,
        )
        self.authentication = TokenAuthentication(self.tokens, self.revocations, self.host_keys)
        self.presence = UserGateways(hot, gateway, settings.gateway.online_ttl_s)
        self.user_presence = UserPresence(self.presence_states, settings.presence, clock)
        self.sessions = UserSessions(
            hot=hot,
            gateway=gateway,
            sessions_max=settings.gateway.sessions_per_user_max,
            keep_s=LAST_SEEN_TTL_S,
        )
        self.gateway_stream = GatewayStream(hot, gateway, settings.gateway.online_ttl_s)

    def _find_provider(self, feature: Feature, port: str) -> str | None:
        return feature.gateway_ports.get(port)

    @property
    def charge(self) -> Charge:
        return self.limits.charge_memory

    @property
    def chat_directory(self) -> RpcClient:
        return self.warm

    @property
    def warm_history(self) -> RpcClient:
        return self.warm

    @property
    def earlier_periods(self) -> RpcClient:
        return self.warm

    async def load_chat(self, chat: ChatId) -> None:
        await self.warm.load_chat(chat)

    async def load_user(self, user: UserId) -> None:
        await self.warm.load_user(user)

    @cached_property
    def sync(self) -> DeviceSync:
        return DeviceSync(
            inboxes=self.inboxes,
            log=self.chat_log,
            older=self.warm,
            clock=self.clock,
            views=self.views,
            pages=self.settings.chats.page_bounds,
        )

    @cached_property
    def large_chat_log(self) -> LargeChatLog:
        return LargeChatLog(self.chat_log, self.views, self.clock)
