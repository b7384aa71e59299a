"""Token refreshes after an outage, with the request limits of AWS.

    python -m tests.benchmarks.refresh_storm [--users 1000] [--requests 1000]

*Many users*: each user refreshes the token of a login, 128 at a time. *One token*: many
requests use the same refresh token, as the windows of a browser do, 128 at a time; all must get
the same next token. This process calls the service, on a real Redis and the DynamoDB API server
of the development environment behind `chatserver.dev.aws_limits`. Prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import click
import uvloop

from chatserver import config
from chatserver.config import Settings
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.dev.servers import Server, aws_limits_launch, dynamodb_launch, redis_launch
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import ChatError
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.service.login_tokens import Grant
from chatserver.warm.dynamo.client import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables
from tests.integration.warm.support import settings_for
from tests.support.servers.limits import count_refusals
from tests.support.servers.processes import free_port, redis_url_of

IN_FLIGHT = 128


async def _measure(
    endpoint: str, calls: Sequence[Awaitable[Grant]]
) -> tuple[dict[str, Any], list[Grant]]:
    slots, granted = asyncio.Semaphore(IN_FLIGHT), list[Grant]()

    async def run(call: Awaitable[Grant]) -> None:
        async with slots:
            try:
                granted.append(await call)
            except ChatError as exc:
                sys.stderr.write(f"{exc.message}\n")

    before, began = count_refusals(endpoint), time.monotonic()
    await asyncio.gather(*map(run, calls))
    took_s = time.monotonic() - began
    figures = {
        "refreshes": len(calls),
        "failed": len(calls) - len(granted),
        "refused": dict(count_refusals(endpoint) - before),
        "a_second": round(len(calls) / took_s),
    }
    return figures, granted


async def _run_all(container: StorageContainer, users: int, requests: int) -> dict[str, Any]:
    logins, endpoint = container.get(AccountContainer).logins, container.dynamodb.endpoint
    names = [UserId(f"user{number:05d}") for number in range(users)]
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def begin(name: UserId) -> Grant:
        async with slots:
            await container.directory.put_user_if_absent(name, None, 1.0)
            return await logins.begin(name, None, created_ms=0)

    first = await asyncio.gather(*map(begin, names))
    many, granted = await _measure(endpoint, [logins.refresh(g.refresh_token) for g in first])
    assert len({each.refresh_token for each in granted}) == len(granted)
    newest = next(each for each in granted if each.user == names[0])
    calls = [logins.refresh(newest.refresh_token) for _ in range(requests)]
    one, again = await _measure(endpoint, calls)
    assert len({each.refresh_token for each in again}) == 1
    return {"in_flight": IN_FLIGHT, "many users": many, "one token": one}


async def _run(redis_url: str, endpoint: str, users: int, requests: int) -> dict[str, Any]:
    warm = settings_for(endpoint)
    auth = config.Auth(secret="s" * 32)  # type: ignore[arg-type]  # pydantic makes it secret
    settings = Settings(redis=config.Redis(url=redis_url), warm=warm, auth=auth)
    async with open_dynamodb(warm) as client:
        await apply_tables(client, warm, poll_s=0.01)
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        return await _run_all(container, users, requests)


@click.command()
@click.option("--users", default=1_000, show_default=True)
@click.option("--requests", default=1_000, show_default=True)
def main(users: int, requests: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        redis = Server(redis_launch(Path(folder) / "redis", free_port(), appendonly="no")).start()
        dynamodb = Server(dynamodb_launch(Path(folder) / "dynamodb", free_port())).start()
        launch = aws_limits_launch(Path(folder) / "limits", free_port(), dynamodb.port)
        limits = Server(launch).start()
        try:
            found = uvloop.run(_run(redis_url_of(redis), limits.endpoint, users, requests))
        finally:
            for each in (limits, dynamodb, redis):
                each.kill()
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
