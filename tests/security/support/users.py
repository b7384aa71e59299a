"""Account, API key and command line helpers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from chatserver.config import Settings
from chatserver.container.storage import make_api_keys
from chatserver.domain.clock import SystemClock
from chatserver.service.access.api_keys import ApiKeys
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.support.fork_server import CLI, run_process
from tests.support.stack import Stack

PASSWORD = "correct horse battery"

NewClient = Callable[[], httpx.AsyncClient]
Fields = dict[str, Any]


async def register(client: httpx.AsyncClient, user: str, **more: Any) -> Fields:
    """Register an account; return the response with its tokens."""
    body = {"user": user, "password": PASSWORD, **more}
    answer = await client.post("/v1/auth/register", json=body)
    assert answer.status_code == 201, answer.text
    granted: Fields = answer.json()
    return granted


async def log_in(client: httpx.AsyncClient, user: str, password: str = PASSWORD) -> Fields:
    """Log in; return the response with the tokens."""
    answer = await client.post("/v1/auth/login", json={"user": user, "password": password})
    assert answer.status_code == 200, answer.text
    granted: Fields = answer.json()
    return granted


def bearer(token: str) -> dict[str, str]:
    """Return the authorization header of a token."""
    return {"Authorization": f"Bearer {token}"}


async def run_cli(stack: Stack, *args: str) -> str:
    """Run a `chatserver` command; return its output."""
    done = await run_any_cli(stack, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def run_any_cli(stack: Stack, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a `chatserver` command that may fail."""
    env = {**os.environ, **stack.environment()}
    return await asyncio.to_thread(run_process, [*CLI, *args], env, 60)


@contextlib.asynccontextmanager
async def open_keys(stack: Stack) -> AsyncIterator[ApiKeys]:
    """Open the API key use cases on the directory of a stack."""
    settings = Settings.model_validate({"warm": stack.warm.model_dump()})
    async with open_dynamodb(stack.warm) as dynamodb:
        yield make_api_keys(dynamodb, settings, SystemClock())


async def make_key(stack: Stack, *scopes: str) -> str:
    """Create an API key with these scopes; return it."""
    async with open_keys(stack) as keys:
        return (await keys.create("test", scopes))[1]
