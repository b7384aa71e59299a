"""Dependencies of companion requests, for every process that accepts messages."""

from __future__ import annotations

import msgspec

from chatserver.container import feature_ports
from chatserver.container.core import CoreContainer
from chatserver.container.gateway import GatewayContainer
from chatserver.domain.ids import UserId
from chatserver.features.companions.commands import CompanionCommands
from chatserver.features.companions.hot.response_stream import ResponseStream
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.protocol import frames


def make_companion_requests(core: CoreContainer) -> CompanionCommands:
    return CompanionCommands(
        budgets=TokenBudgets(core.hot, core.settings.companions),
        references=core.hot_membership,
        streams=ResponseStream(core.hot),
        members=core.members,
    )


def check_companion_send(core: CoreContainer) -> feature_ports.CheckSend:
    return core.get(make_companion_requests).check_budget


def make_frame_handler(core: GatewayContainer) -> feature_ports.AnswerCompanionFrame:
    requests = core.get(make_companion_requests)

    async def handle(user: UserId, frame: feature_ports.CompanionFrame) -> msgspec.Struct:
        match frame:
            case frames.StopTurn():
                return await requests.stop(user, frame)
            case frames.JoinTurn():
                return await requests.join(user, frame)

    return handle
