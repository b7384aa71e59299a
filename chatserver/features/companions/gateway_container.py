"""Dependencies of companion requests, for every process that accepts messages."""

from __future__ import annotations

from chatserver.container import feature_ports
from chatserver.container.core import CoreContainer
from chatserver.features.companions.commands import CompanionCommands
from chatserver.features.companions.hot.response_stream import ResponseStream
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.settings import Companions


def make_companion_commands(core: CoreContainer) -> CompanionCommands:
    return CompanionCommands(
        budgets=TokenBudgets(core.hot, core.settings.get(Companions)),
        references=core.hot_membership,
        streams=ResponseStream(core.hot),
        members=core.members,
    )


def check_companion_send(core: CoreContainer) -> feature_ports.CheckSend:
    return core.get(make_companion_commands).check_budget
