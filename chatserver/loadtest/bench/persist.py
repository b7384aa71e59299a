"""Persist worker: the rate at which it empties a backlog, its CPU cost, and its memory.

A backlog of direct messages is written to a real Redis, in the format that gateways use. One worker
process then runs on a core of its own. The measurement starts when the worker gets the lease and
ends at its last checkpoint, so it does not include process startup. With the DynamoDB stub, the
worker itself is the limit; with the development DynamoDB API server, that server is the limit.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import redis as redis_py
import uvloop

from chatserver import config
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY, dynamodb_launch, redis_launch
from chatserver.domain.ids import UserId, direct_chat_id, new_id
from chatserver.encryption.key_file import new_line
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.keys import Keys
from chatserver.loadtest.bench.server_stack import (
    Placement,
    build_launch,
    find_free_port,
    get_pid,
    run_server,
    run_worker,
)
from chatserver.loadtest.machine import read_cpu_s, read_rss_bytes
from chatserver.protocol import codec, frames
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.provisioning import apply_tables

_CHATS = 200
_BODY = "x" * 90
_IN_ENTRY = 64  # Messages per backlog entry: under load, a gateway commits about as many at once.
_SAMPLE_S = 0.05
_STUCK_S = 60.0
_OWNER = "bench"  # The benchmark holds the lease under this name until the worker has started.


@contextlib.contextmanager
def _run_dynamodb(database: str, folder: Path, core: int) -> Iterator[str]:
    port = find_free_port()
    launch = (
        build_launch(
            "stub", ["chatserver.loadtest.bench.dynamodb_stub", "--port", str(port)], port, folder
        )
        if database == "stub"
        else dynamodb_launch(folder / "dynamodb", port)
    )
    with run_server(launch, core):
        yield f"http://127.0.0.1:{port}"


def fill_backlog(client: redis_py.Redis, keys: Keys, count: int) -> None:
    """Write a backlog in the format of `commit_messages.lua`, evenly over the chats."""
    pairs = [(UserId(f"a{n}"), UserId(f"b{n}")) for n in range(_CHATS)]
    chats = [(direct_chat_id(*pair), *pair) for pair in pairs]
    now_us, done = int(time.time() * 1e6), 0
    pipe = client.pipeline(transaction=False)
    while done < count:
        fields: list[bytes] = [b"g", b"load"]
        for n in range(done, min(done + _IN_ENTRY, count)):
            chat, sender, receiver = chats[n % _CHATS]
            seq, ts = 1 + n // _CHATS, now_us + n
            message = frames.Message(seq, ts, chat, new_id(), sender, f"load-{n}", "text", _BODY)
            fields += [b"%d:%d" % (seq, ts), receiver.encode() + b"\n" + codec.encode_tail(message)]
        done = min(done + _IN_ENTRY, count)
        pipe.execute_command("XADD", keys.backlog(0), "*", *fields)  # type: ignore[no-untyped-call]
        if len(pipe) >= 100:
            pipe.execute()
    pipe.hincrby(keys.checkpoint(0), "waiting", count)
    pipe.execute()


async def _prepare(settings: config.Redis, warm: config.Warm, database: str, count: int) -> Keys:
    async with open_hot(settings) as hot:
        keys = hot.keys
    if database != "stub":
        async with open_dynamodb(warm) as dynamodb:
            await apply_tables(dynamodb.for_feature("operations"), warm, poll_s=0.1)
    with redis_py.Redis.from_url(settings.url) as client:
        fill_backlog(client, keys, count)
    return keys


def measure(
    database: str, count: int, core: int, other: int, *, is_encrypted: bool = False
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as exits:
        folder = Path(name)
        redis = exits.enter_context(
            run_server(redis_launch(folder / "redis", find_free_port(), appendonly="no"), other)
        )
        endpoint = exits.enter_context(_run_dynamodb(database, folder, other))
        url = f"redis://{redis.launch.address}/0"
        warm = config.Warm(
            endpoint=endpoint, region=REGION, access_key=ACCESS_KEY, secret_key=SECRET_KEY
        )
        keys = uvloop.run(_prepare(config.Redis(url=url), warm, database, count))
        env = {
            "CHAT_REDIS_URL": url,
            "CHAT_WARM_ENDPOINT": endpoint,
            "CHAT_WARM_REGION": REGION,
            "CHAT_WARM_ACCESS_KEY": ACCESS_KEY,
            "CHAT_WARM_SECRET_KEY": SECRET_KEY,
            "CHAT_TELEMETRY_LEVEL": "warning",
        }
        if is_encrypted:
            path = folder / "keys"
            path.write_text(new_line())
            env |= {"CHAT_ENCRYPTION_PROVIDER": "file", "CHAT_ENCRYPTION_KEY_FILE": str(path)}
        client = exits.enter_context(contextlib.closing(redis_py.Redis.from_url(url)))
        lease = keys.lease(0, "persist")
        client.hset(lease, mapping={"owner": _OWNER, "token": 1, "until_ms": 2**52})
        server = exits.enter_context(
            run_worker("persist", Placement(other, core, "no"), folder, env)
        )
        client.hset(lease, "owner", "")
        give_up_at = time.monotonic() + _STUCK_S
        while client.hget(lease, "owner") == b"":
            assert time.monotonic() < give_up_at, "the worker has not acquired the lease"
            time.sleep(0.001)
        return _measure_worker(client, keys.checkpoint(0), get_pid(server), count)


def _measure_worker(
    client: redis_py.Redis, checkpoint: str, pid: int, count: int
) -> dict[str, Any]:
    """Measure the worker's CPU time and memory until the backlog is empty."""
    started_at, cpu_before_s = time.monotonic(), read_cpu_s(pid)
    remaining, moved_at, resident = count, started_at, list[int]()
    while remaining > 0:
        assert time.monotonic() - moved_at < _STUCK_S, "the worker makes no progress"
        time.sleep(_SAMPLE_S)
        before, remaining = remaining, int(client.hget(checkpoint, "waiting") or 0)
        if remaining < before:
            moved_at = time.monotonic()
            resident.append(read_rss_bytes(pid))
    fifth = max(1, len(resident) // 5)
    return {
        "messages": count,
        "messages_per_second": round(count / (moved_at - started_at)),
        "cpu_us_per_message": round((read_cpu_s(pid) - cpu_before_s) * 1e6 / count, 1),
        "rss_mb_first_fifth": round(max(resident[:fifth]) / 2**20, 1),
        "rss_mb_last_fifth": round(max(resident[-fifth:]) / 2**20, 1),
    }


@click.command(help=__doc__)
@click.option(
    "--messages",
    default=500_000,
    show_default=True,
    type=click.IntRange(10_000),
    help="Messages in the backlog.",
)
@click.option(
    "--against",
    "database",
    type=click.Choice(["stub", "dynamodb"]),
    default="stub",
    help="Database: the DynamoDB stub, or the development DynamoDB API server.",
)
@click.option(
    "--runs", default=3, show_default=True, type=click.IntRange(1, 20), help="Number of runs."
)
@click.option("--encrypt", is_flag=True, help="Encrypt bodies with a key file.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all results to this file as JSON.",
)
def persist(messages: int, database: str, runs: int, *, encrypt: bool, out: Path | None) -> None:
    results = []
    for run in range(runs):
        results.append(measure(database, messages, core=0, other=1, is_encrypted=encrypt))
        click.echo(f"run {run + 1}: {json.dumps(results[-1])}")
    medians = {
        name: statistics.median(run_result[name] for run_result in results) for name in results[0]
    }
    click.echo(json.dumps({"against": database, "runs": runs, "median": medians}, indent=2))
    if out is not None:
        out.write_text(json.dumps({"against": database, "runs": results, "median": medians}))
