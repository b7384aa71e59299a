"""Comparison of cached messages with the server, in the background.

The unverified entries of each chat are requested as pages of history, the most recently used chat
first, at most one page per `INTERVAL_S`. Unverified entries are not read until a page has replaced
them. A chat that the user can no longer read is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chatserver.client.cache.local_store import LocalStore
from chatserver.client.cache.message_cache import Unverified
from chatserver.client.client_state import ClientState
from chatserver.client.request_queue import Fields
from chatserver.errors import ChatError, Forbidden, NotFound

INTERVAL_S = 0.25
RETRY_S = 5.0
PAGE = 200
ANSWER_S = 30.0

SendRequest = Callable[[Fields, float], Awaitable[Fields]]
Save = Callable[[], Awaitable[None]]


async def revalidate(store: LocalStore, state: ClientState, ask: SendRequest, save: Save) -> None:
    """Compare unverified messages with the server, until cancelled."""
    while True:
        store.unverified.clear()
        found = None
        if state.is_online:
            await save()  # first, write all pending changes to the cache
            found = await store.find_unverified()
        if found is None:
            await store.unverified.wait()
            continue
        await asyncio.sleep(await _compare_page(found, store, state, ask))


async def _compare_page(
    found: Unverified, store: LocalStore, state: ClientState, ask: SendRequest
) -> float:
    """Read one page; return the seconds until the next one."""
    fields: Fields = {"type": "history", "chat": found.chat, "limit": PAGE}
    if found.before is not None:
        fields["before"] = found.before
    try:
        state.refresh(await ask(fields, ANSWER_S))  # `ask` has recorded the page
    except (NotFound, Forbidden):
        store.record_access_lost(found.chat)
        state.remove_chat(found.chat)
    except ChatError as exc:
        return (exc.retry_after_ms or 0) / 1000 + RETRY_S
    return INTERVAL_S
