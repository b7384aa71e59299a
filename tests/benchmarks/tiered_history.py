"""A chat of 50,000 messages in all three tiers, read completely while workers move messages.

    python -m tests.benchmarks.tiered_history [--old 40000] [--recent 9000] [--encrypt]

The oldest part is written to DynamoDB with old timestamps and moves to S3 while it is read. The
next part stays in DynamoDB; the newest is committed in Redis between the reads. The persist worker
and the archive worker are separate processes; this process reads, as `worker rpc` does. Each read
checks each message: contiguous seq, exactly once, correct text. Pages have 50 messages; results
are per tier.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import uvloop

from chatserver import config
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.container.storage import open_storage_container
from chatserver.dev.servers import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    dynamodb_launch,
    ministack_launch,
    redis_launch,
)
from chatserver.domain.clock import SystemClock
from chatserver.encryption.key_file import new_line
from chatserver.loadtest.bench.server_stack import Placement, find_free_port, run_server, run_worker
from chatserver.warm.dynamo.client import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables
from tests.support.threetiers import LongChat, Walk, history_of, walk

_BUCKET = "tiers"
_RETENTION_S = 3600


def times_of(walks: list[Walk]) -> dict[str, Any]:
    """Return the response times of pages by tier, in milliseconds."""
    found: dict[str, Any] = {}
    for tier in ("hot", "warm", "cold"):
        ms = sorted(took_s * 1000 for each in walks for took_s in each.seconds.get(tier, ()))
        if len(ms) < 2:
            found[tier] = {"pages": len(ms)}
            continue
        cuts = statistics.quantiles(ms, n=100, method="inclusive")
        found[tier] = {"pages": len(ms), "p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1)}
    return found


async def measure(settings: config.Settings, start: Any, sizes: tuple[int, int, int]) -> Any:
    """Measure and return the results; `start` starts the worker processes."""
    old, recent, hot = sizes
    async with open_dynamodb(settings.warm) as dynamodb, open_s3(settings.cold) as store:
        await apply_tables(dynamodb, settings.warm, poll_s=0.1)
        await apply_bucket(store, settings.cold)
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        chat, history = LongChat(container, old, recent), history_of(container)
        began = time.monotonic()
        await chat.prepare()
        filled_s = time.monotonic() - began
        walks_moving: list[Walk] = []
        walks_at_rest: list[Walk] = []
        with contextlib.ExitStack() as exits:
            start(exits)
            began = time.monotonic()
            is_down = True
            while (top := (await container.manifests.get_top(chat.chat)).seq) < old:
                await chat.send_messages(50)
                walks_moving.append(await walk(history, chat, is_down=is_down))
                is_down = not is_down
                click.echo(f"moved {top} of {old}: {dict(walks_moving[-1].pages)}", err=True)
            archived_s = time.monotonic() - began
            while chat.head < old + recent + hot:
                await chat.send_messages(50)
            for is_down in (True, False) * 3:
                walks_at_rest.append(await walk(history, chat, is_down=is_down))
                click.echo(f"at rest: {dict(walks_at_rest[-1].pages)}", err=True)
    return {
        "messages": chat.head,
        "filled_s": round(filled_s, 1),
        "archived_while_read_s": round(archived_s, 1),
        "walks_while_it_moves": len(walks_moving),
        "messages_read": sum(each.messages for each in walks_moving + walks_at_rest),
        "pages_while_it_moves": times_of(walks_moving),
        "pages_at_rest": times_of(walks_at_rest),
    }


@click.command()
@click.option("--old", default=40_000, show_default=True, type=click.IntRange(100))
@click.option("--recent", default=9_000, show_default=True, type=click.IntRange(100))
@click.option("--hot", default=1_000, show_default=True, type=click.IntRange(50))
@click.option("--encrypt", is_flag=True, help="Encrypt bodies with a key file.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path))
def main(old: int, recent: int, hot: int, *, encrypt: bool, out: Path | None) -> None:
    """Measure, and print the results as JSON."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as exits:
        folder = Path(name)
        redis = exits.enter_context(
            run_server(redis_launch(folder / "redis", find_free_port(), appendonly="no"), 1)
        )
        dynamodb = exits.enter_context(
            run_server(dynamodb_launch(folder / "d", find_free_port()), 1)
        )
        s3 = exits.enter_context(
            run_server(ministack_launch(folder / "s3", find_free_port(), service="s3"), 1)
        )
        keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": REGION}
        (folder / "keys").write_text(new_line())
        provider = {"provider": "file", "key_file": folder / "keys"} if encrypt else {}
        settings = config.Settings(
            encryption=config.Encryption(**provider),
            redis=config.Redis(url=f"redis://{redis.launch.address}/0"),
            warm=config.Warm(endpoint=dynamodb.endpoint, **keys),
            cold=config.Cold(endpoint=s3.endpoint, bucket=_BUCKET, **keys),
            archive=config.Archive(retention_s=_RETENTION_S),
        )
        env = {
            "CHAT_REDIS_URL": settings.redis.url,
            "CHAT_WARM_ENDPOINT": dynamodb.endpoint,
            "CHAT_COLD_ENDPOINT": s3.endpoint,
            "CHAT_COLD_BUCKET": _BUCKET,
            **{f"CHAT_ENCRYPTION_{name.upper()}": str(value) for name, value in provider.items()},
            **{
                f"CHAT_{section}_{name.upper()}": value
                for section in ("WARM", "COLD")
                for name, value in keys.items()
            },
            "CHAT_ARCHIVE_RETENTION_S": str(_RETENTION_S),
            "CHAT_ARCHIVE_SWEEP_INTERVAL_S": "0.5",
            "CHAT_TELEMETRY_LEVEL": "warning",
        }

        def start(stack: contextlib.ExitStack) -> None:
            for role in ("persist", "archive"):
                options = Placement(1, 1, "no")
                stack.enter_context(run_worker(role, options, folder, env))

        found = uvloop.run(measure(settings, start, (old, recent, hot)))
    click.echo(json.dumps(found, indent=2))
    if out is not None:
        out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
