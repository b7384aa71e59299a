"""AI responses: the delay from a model's first word to the device, with many responses at once.

    python -m tests.benchmarks.ai_responses [--turns 200] [--rounds 3] [--words 200] [--pace-ms 50]
        [--out F.json]
    python -m tests.benchmarks.ai_responses --context

One gateway, a worker for the warm tier, and an AI worker run on this machine. Each user has a
session; all ask at once, and the scripted model answers all of them concurrently at its pace. The
AI worker runs in its own process (``--worker``) and records the time of the first delta of each
response; the device records the time of its signal. Both use CLOCK_MONOTONIC, which all processes
of a machine share. Writes JSON.

With ``--context`` the cost of a context is measured instead: one page of history, in sessions of
several lengths, in time and in Redis commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import click

from chatserver.config import load_settings
from chatserver.container.storage import open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.features.companions.model import Changes
from chatserver.features.companions.providers.interface import Delta, Finish, ModelRequest
from chatserver.features.companions.providers.scripted import Scripted
from chatserver.features.companions.worker import assistant_worker
from chatserver.hot.redis.client import HotClient
from chatserver.protocol import frames
from tests.integration.features.companions.support import open_companions
from tests.support.deadlines import open_process
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import WORKERS, Stack, open_stack

PACE = "LOAD_PACE_MS"
DEADLINE_S = 120.0
LENGTHS = (20, 500, 5_000)  # messages of a session
SENDS_IN_FLIGHT = 50
READS = 50
BODY = "x" * 200


# the worker


class RecordingModel(Scripted):
    """A scripted model that records the time of the first delta of each question."""

    def __init__(self, delta_s: float, times_file: Path) -> None:
        super().__init__(delta_s)
        self._times_file = times_file.open("a", buffering=1)

    async def get_provider(self, name: str) -> RecordingModel:
        """Return this provider for every name."""
        return self

    async def stream(self, ask: ModelRequest) -> AsyncGenerator[Delta | Finish]:
        """See `Scripted.stream`."""
        question, is_first = ask.messages[-1].text, True
        async for piece in super().stream(ask):
            now = time.monotonic()
            yield piece
            if is_first:
                is_first = False
                self._times_file.write(f"{question} {now}\n")


async def run_worker(times_file: Path) -> None:
    """Run the AI worker until the process is killed."""
    settings = load_settings()
    provider = RecordingModel(int(os.environ[PACE]) / 1000, times_file)
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        context = assistant_worker.build_context(container, provider)  # type: ignore[arg-type]  # has every attribute that is used
        running = assistant_worker.ResponseSlots(settings.companions.responses_max)
        await assistant_worker.AssistantWorker(
            container=container, context=context, running=running, partition=0, owner="load"
        ).run()


@contextlib.contextmanager
def running_worker(stack: Stack, times_file: Path) -> Iterator[None]:
    """Run the AI worker in a process."""
    command = [sys.executable, "-m", "tests.benchmarks.ai_responses", "--worker", str(times_file)]
    with open_process(command, env={**os.environ, **stack.environment()}):
        yield


# the devices


class Device(RawChat):
    """Records the time of the first delta of each response, and counts ended responses."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first: list[float] = []
        self.ended_count = 0

    def _handle(self, fields: dict[str, Any]) -> None:
        if fields.get("kind") == "ai.delta":
            if fields["index"] == 1:
                self.first.append(time.monotonic())
            self.ended_count += "end" in fields
            return  # there are thousands of deltas, and none is needed later
        super()._handle(fields)


async def make_devices(stack: Stack, count: int, companion: str) -> dict[Device, str]:
    """Connect users, each with a session; return their chats."""
    gate, chats = asyncio.Semaphore(16), dict[Device, str]()

    async def create_session(number: int) -> None:
        async with gate:
            device = Device(f"u{number:04}", stack.port, stack.token)
            await device.start()
            asked = await device.request("create_session", companion=companion, ref="s1")
            chats[device] = asked["session"]["chat"]

    await asyncio.gather(*map(create_session, range(count)))
    return chats


async def send_to_all(chats: dict[Device, str], number: int) -> dict[Device, str]:
    """Send a question from every user, and wait for all responses; return the questions."""
    questions = {device: secrets.token_hex(8) for device in chats}
    await asyncio.gather(
        *(device.send(chats[device], question) for device, question in questions.items())
    )
    await eventually(
        lambda: all(device.ended_count > number for device in chats),
        deadline_s=DEADLINE_S,
        what="all answers",
    )
    return questions


def percentiles(values: list[float]) -> dict[str, float]:
    """Return p50, p95, p99 and the largest, in milliseconds."""
    cuts = statistics.quantiles(values, n=100)
    found = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(values)}
    return {name: round(value * 1000, 2) for name, value in found.items()}


async def measure(
    stack: Stack, turns: int, rounds: int, words: int, times_file: Path
) -> dict[str, Any]:
    """Return the delay between the model sending the first delta and the device receiving it."""
    chats = await make_devices(stack, turns, await make_companion(stack, words))
    asked: list[tuple[Device, int, str]] = []
    for number in range(rounds):
        questions = await send_to_all(chats, number)
        asked += [(device, number, question) for device, question in questions.items()]
    first_delta_at = dict(line.split(" ") for line in times_file.read_text().splitlines())
    waits = [
        device.first[number] - float(first_delta_at[question]) for device, number, question in asked
    ]
    started = sorted(float(first_delta_at[question]) for _, _, question in asked[:turns])
    await asyncio.gather(*(device.stop() for device in chats))
    return {
        "turns": turns,
        "rounds": rounds,
        "first_delta_ms": percentiles(waits),
        "all_begun_within_s": round(started[-1] - started[0], 2),
    }


async def measure_contexts(stack: Stack) -> dict[str, Any]:
    """Return the cost of the history read of a response, by length of the session."""
    chats = await make_devices(stack, len(LENGTHS), await make_companion(stack, 1))
    found = {}
    async with open_storage_container(
        role="worker", settings=load_settings(), clock=SystemClock()
    ) as container:
        history = assistant_worker.build_context(
            container, RecordingModel(0, Path(os.devnull))
        ).history  # type: ignore[arg-type]  # has every attribute that is used
        for (device, chat), length in zip(chats.items(), LENGTHS, strict=True):
            for start in range(0, length, SENDS_IN_FLIGHT):
                numbers = range(start, min(length, start + SENDS_IN_FLIGHT))
                await asyncio.gather(*(device.send(chat, f"{BODY} {n}") for n in numbers))
            ask = frames.History(0, chat, limit=100)
            took, before = [], await count_commands(container.hot)
            for _ in range(READS):
                began = time.monotonic()
                await history.get_page(UserId(device.user), ask)
                took.append(time.monotonic() - began)
            commands = await count_commands(container.hot) - before
            found[length] = {
                "ms": percentiles(took), "redis_commands": round((commands - 1) / READS, 1)
            }  # fmt: skip
    await asyncio.gather(*(device.stop() for device in chats))
    return {"context": found}


async def count_commands(hot: HotClient) -> int:
    """Return how many read commands of a page Redis has run."""
    stats = (await hot.call("INFO", "commandstats")).decode()
    calls = re.findall(r"cmdstat_(hmget|xrevrange|xrange|hget|hgetall):calls=(\d+)", stats)
    return sum(int(count) for _, count in calls)


async def make_companion(stack: Stack, words: int) -> str:
    """Create the companion of all users."""
    wanted = Changes(
        name="Ada",
        prompt="Be kind.",
        provider="scripted",
        model=f"story:{words}",
        context_tokens_max=100_000,  # no summaries in this benchmark
        answer_tokens_max=4_000,
    )
    async with open_companions(stack) as companions:
        return (await companions.create("ai-load", wanted)).id


@click.command()
@click.option("--turns", default=200)
@click.option("--rounds", default=3)
@click.option("--words", default=200)
@click.option("--pace-ms", default=50)
@click.option("--context", is_flag=True)
@click.option("--out", type=click.Path(path_type=Path))
@click.option(
    "--worker", type=click.Path(path_type=Path), help="run the worker; write times to this file"
)
def main(
    turns: int,
    rounds: int,
    words: int,
    pace_ms: int,
    context: bool,
    out: Path | None,
    worker: Path | None,
) -> None:
    """Measure, and print the results."""
    if worker is not None:
        asyncio.run(run_worker(worker))
        return
    env = {
        "CHAT_COMPANIONS_TOKENS_PER_DAY": "1000000000",
        PACE: str(pace_ms),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_stack(folder, fsync="no", workers=(WORKERS,), env=env) as stack:
            if context:
                os.environ |= stack.environment()
                click.echo(json.dumps(asyncio.run(measure_contexts(stack)), indent=1))
                return
            times_file = folder / "times.txt"
            times_file.touch()
            with running_worker(stack, times_file):
                found = asyncio.run(measure(stack, turns, rounds, words, times_file))
    found |= {"words": words, "pace_ms": pace_ms}
    click.echo(json.dumps(found, indent=1))
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
