"""Loads the SDKs of the model providers in use, before the assistant worker is ready."""

from __future__ import annotations

import asyncio

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import CompanionId
from chatserver.errors import ChatError
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.providers.registry import load_sdk

log = structlog.get_logger()

PAGE = 100
PAGES_MAX = 20  # maximum pages of companions; SDKs of further companions are loaded on first use


async def preload_sdks(container: StorageContainer) -> None:
    """Load the SDK of each provider that a companion uses, in a thread.

    Otherwise the first response would be delayed for seconds. Failures are only logged, because
    each response that uses the provider reports them again.
    """
    for name in sorted(await _list_providers(container)):
        try:
            await asyncio.to_thread(load_sdk, name)
        except ChatError as exc:
            log.warning("assistant.sdk_missing", provider=name, error=exc.message)


async def _list_providers(container: StorageContainer) -> set[str]:
    companions = container.get(CompanionContainer).companions
    providers: set[str] = set()
    after: CompanionId | None = None
    try:
        for _ in range(PAGES_MAX):
            page, after = await companions.list_page(after, PAGE)
            providers.update(companion.provider for companion in page)
            if after is None:
                break
    except ChatError as exc:
        log.warning("assistant.preload_failed", error=exc.message)
    return providers
