"""Fixtures of the model providers: stub servers with their APIs, and providers that call them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from chatserver.features.companions.providers.bedrock import open_bedrock
from chatserver.features.companions.providers.interface import ModelProvider
from chatserver.features.companions.providers.openai_api import OpenAiApi
from chatserver.features.companions.settings import Companions
from tests.support.servers.model_servers import EVENT_STREAM, SSE, ModelServer, open_model_server


@dataclasses.dataclass
class Model:
    """A provider by its name, and the stub server that it calls."""

    name: str
    server: ModelServer
    provider: ModelProvider


@contextlib.asynccontextmanager
async def bedrock_at(server: ModelServer) -> AsyncIterator[ModelProvider]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)
        async with open_bedrock(Companions()) as provider:
            yield provider


@contextlib.asynccontextmanager
async def openai_at(server: ModelServer) -> AsyncIterator[ModelProvider]:
    provider = OpenAiApi(Companions(openai_url=f"{server.url}/v1", openai_key=SecretStr("k")))
    try:
        yield provider
    finally:
        await provider.close()


@pytest.fixture
async def bedrock_server() -> AsyncIterator[ModelServer]:
    async with open_model_server(EVENT_STREAM) as server:
        yield server


@pytest.fixture
async def openai_server() -> AsyncIterator[ModelServer]:
    async with open_model_server(SSE) as server:
        yield server


@pytest.fixture
async def bedrock(bedrock_server: ModelServer) -> AsyncIterator[Model]:
    async with bedrock_at(bedrock_server) as provider:
        yield Model("bedrock", bedrock_server, provider)


@pytest.fixture
async def openai(openai_server: ModelServer) -> AsyncIterator[Model]:
    async with openai_at(openai_server) as provider:
        yield Model("openai", openai_server, provider)


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Model:
    """The provider that the parameter names."""
    found: Model = request.getfixturevalue(request.param)
    return found
