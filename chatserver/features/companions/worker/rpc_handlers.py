"""RPC handlers for gateways' calls about companions and sessions; see `workers.rpc`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import assert_never

import msgspec

from chatserver.auth.page_cursors import Cursors
from chatserver.container import storage_feature_ports
from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import parse_companion_id
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.frames import describe_companion, describe_session, list_name
from chatserver.hot.bus import rpc


def make_handler(container: StorageContainer) -> storage_feature_ports.HandleCompanionCall:
    return functools.partial(handle_companion_call, container)


async def handle_companion_call(
    container: StorageContainer, call: rpc.CompanionCall
) -> msgspec.Struct:
    """Execute a gateway's call and return the reply.

    Raises:
        ChatError: the call failed.
    """
    sessions = container.get(CompanionContainer).sessions
    match call:
        case rpc.ListCompanions():
            after = None if call.after is None else parse_companion_id(call.after, "after")
            page, following = await container.get(CompanionContainer).companions.list_page(
                after, call.limit
            )
            return rpc.CompanionsPage(
                [describe_companion(companion) for companion in page], following
            )
        case rpc.ListSessions():
            return await _list_sessions(container, call)
        case rpc.BeginSession():
            begin = sessions.renew if call.is_renewal else sessions.create
            opened = await begin(
                UserId(call.user), parse_companion_id(call.companion), Ref(call.ref)
            )
            return rpc.OpenedSession(describe_session(opened.session), opened.info)
        case rpc.GetSession():
            opened = await sessions.get(UserId(call.user), parse_companion_id(call.companion))
            return rpc.OpenedSession(describe_session(opened.session), opened.info)
        case rpc.EndSession():
            chat = None if call.chat is None else ChatId(call.chat)
            old = await sessions.delete(UserId(call.user), parse_companion_id(call.companion), chat)
            if call.forget:
                memories = container.get(CompanionContainer).memories
                await memories.delete_session(old.user, old.companion, old.chat)
            return rpc.OpenedSession(describe_session(old))
        case rpc.MoveSession():
            moved = await sessions.update_version(
                UserId(call.user), ChatId(call.chat), call.version
            )
            return rpc.OpenedSession(describe_session(moved))
        case _ as never:
            assert_never(never)


async def _list_sessions(container: StorageContainer, call: rpc.ListSessions) -> rpc.SessionsPage:
    cursors = Cursors(container.settings.auth.secret)
    user = UserId(call.user)
    companion = None if call.companion is None else parse_companion_id(call.companion)
    what = list_name(user, companion)
    place: Mapping[str, str] | None = cursors.open(what, call.after, dict[str, str])
    page, following = await container.get(CompanionContainer).sessions.list_page(
        user, companion, place, call.limit
    )
    sealed = cursors.sign(what, following)
    return rpc.SessionsPage([describe_session(session) for session in page], sealed)
