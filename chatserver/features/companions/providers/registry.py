"""Registry of model providers, opened on first use."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator

from chatserver.errors import ConfigError
from chatserver.extras import explain_missing
from chatserver.features.companions.providers.interface import ModelProvider
from chatserver.features.companions.providers.scripted import Scripted
from chatserver.features.companions.settings import Companions

_PACKAGE = "chatserver.features.companions.providers"
SCRIPTED_DELTA_MS = 50  # time between two deltas of the scripted model


class Providers:
    """The model providers, by name."""

    def __init__(self, settings: Companions, stack: contextlib.AsyncExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._open: dict[str, ModelProvider] = {}
        self._opening = asyncio.Lock()

    async def get_provider(self, name: str) -> ModelProvider:
        """Return a provider; open it on first use.

        Raises:
            ConfigError: there is no provider with this name, or it is not configured.
        """
        provider = self._open.get(name)
        if provider is None:
            async with self._opening:
                provider = self._open.get(name)
                if provider is None:
                    provider = self._open[name] = await self._make(name)
        return provider

    async def _make(self, name: str) -> ModelProvider:
        match name:
            case "scripted":
                return Scripted(SCRIPTED_DELTA_MS / 1000)
            case "openai":
                await asyncio.to_thread(load_sdk, name)
                from chatserver.features.companions.providers.openai_api import OpenAiApi

                # Create the client in a thread, because it reads the TLS certificates from disk.
                api = await asyncio.to_thread(OpenAiApi, self._settings)
                self._stack.push_async_callback(api.close)
                return api
            case "bedrock":
                await asyncio.to_thread(load_sdk, name)
                from chatserver.features.companions.providers.bedrock import open_bedrock

                return await self._stack.enter_async_context(open_bedrock(self._settings))
            case _:
                raise ConfigError(f"unknown model provider {name}")


def load_sdk(name: str) -> None:
    """Import a provider's SDK. This takes seconds, so call it in a thread.

    SDKs are imported only on first use, because most processes need none of them.

    Raises:
        ConfigError: the SDK is not installed.
    """
    match name:
        case "openai":
            with explain_missing("openai"):
                importlib.import_module(f"{_PACKAGE}.openai_api")
        case "bedrock":
            with explain_missing("bedrock"):
                importlib.import_module(f"{_PACKAGE}.bedrock").preload()


@contextlib.asynccontextmanager
async def open_models(settings: Companions) -> AsyncIterator[Providers]:
    """Open the provider registry; each provider connects on its first call."""
    async with contextlib.AsyncExitStack() as stack:
        yield Providers(settings, stack)
