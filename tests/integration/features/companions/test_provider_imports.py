"""Worker startup: the SDKs of the providers in use are imported before the worker is ready."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    open_assistant_world,
)
from tests.integration.warm.support import Tables

# Prints the SDKs that are loaded before and after `prepare`, and the longest stall of the event
# loop.
SCRIPT = """
import asyncio, json, sys, time
from chatserver.config import load_settings
from chatserver.container.storage import open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.features.registry import load
from workers.runner import list_workers

async def measure(lags):
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - began - 0.005)

def loaded():
    models = sys.modules.get("chatserver.features.companions.providers.bedrock")
    return {
        "openai": "openai" in sys.modules,
        "bedrock": models is not None and models.preload.cache_info().currsize == 1,
    }

async def main():
    async with open_storage_container(
        role="worker", settings=load_settings(), clock=SystemClock()
    ) as container:
        worker = list_workers()["assistant"]
        load(worker.run)
        lags, before = [], loaded()
        task = asyncio.create_task(measure(lags))
        began = time.perf_counter()
        await load(worker.prepare)(container)
        took, after = time.perf_counter() - began, loaded()
        await asyncio.sleep(0.02)
        task.cancel()
        print(json.dumps({"before": before, "after": after, "s": took, "lag_s": max(lags)}))

asyncio.run(main())
"""


async def preload(world: AssistantWorld) -> dict[str, Any]:
    """Prepare a worker in a new process; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT,
        env={**os.environ, **world.variables()}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


async def test_sdks_in_use_are_loaded_before_the_worker_is_ready(
    redis_url: str, tables: Tables, record_property: Callable[[str, object], None]
) -> None:
    """The longest stall of the event loop is recorded in the report and not asserted."""
    async with open_assistant_world(redis_url, tables.settings) as world:
        await world.companion("gpt", provider="openai")
        await world.companion("model.one", provider="bedrock")
        found = await preload(world)

    record_property("longest_stall_s", found["lag_s"])
    assert found["before"] == {"openai": False, "bedrock": False}
    assert found["after"] == {"openai": True, "bedrock": True}


async def test_sdks_of_unused_providers_are_not_loaded(redis_url: str, tables: Tables) -> None:
    """They would delay the start of the worker."""
    async with open_assistant_world(redis_url, tables.settings) as world:
        await world.companion("echo")
        found = await preload(world)

    assert found["after"] == {"openai": False, "bedrock": False}
