"""Full-text search: build, size, queries, refresh and removal with a million messages.

    python -m tests.benchmarks.search [--messages 1000000] [--engine sqlite] [--live] [--out F.json]
        [--folder FOLDER] [--part build] [--part queries] [--part changes] [--queries 200]

With a folder, the index is kept, an interrupted build continues, and a later run can measure
another part.

*Texts* are generated: 1 to 40 words (10 on average) of a vocabulary of 50,000 by a Zipf
distribution, 5 % of them with a German word, and 5 % Chinese instead. 5,000 chats, their sizes by a
power law; 2,000 senders.

*Queries*: one to three words, as frequent as in the texts, the last one incomplete in a third of
the queries; users with 20, 200 and 1,000 chats. Time of the engine alone, in one thread.

*Live* (`sqlite` only): a gateway, an API, persist and search workers, Redis and a DynamoDB API
server on the same machine, with the index above. `chatserver load` sends 1,000 messages a second.
Meanwhile a user sends a message every half second and searches for it over HTTP until it is found;
the time includes the send. Then that user's queries are timed over HTTP.

`lancedb` uses a local S3 server. Prints the figures.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import httpx

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold, Settings
from chatserver.dev.servers import Server, ministack_launch
from chatserver.features.search.engines.registry import open_engine
from chatserver.features.search.model import Changes, Document, DocumentRef, Engine, Order, State
from chatserver.features.search.query import parse_query
from chatserver.features.search.settings import Search
from chatserver.features.search.tokenizer import RULES_VERSION
from chatserver.features.search.work_budget import WorkBudget
from chatserver.features.search.worker.index_changes import join_tokens
from tests.benchmarks.output import out_option, write_figures
from tests.integration.features.attachments.support import cold_settings
from tests.support.fork_server import CLI
from tests.support.rawchat import RawChat
from tests.support.servers.processes import free_port
from tests.support.stack import Stack, open_stack

CHATS, SENDERS, WORDS = 5_000, 2_000, 50_000
BATCH = 1_000
QUERIES = 200
PARTS = ("build", "queries", "changes")
RATE, LOAD_S, PROBES_S = 1_000, 25, 20
SYLLABLES = [
    "ba",
    "ko",
    "li",
    "mu",
    "ne",
    "ra",
    "si",
    "to",
    "ve",
    "za",
    "chi",
    "dor",
    "fel",
    "gan",
    "hul",
    "jin",
]
GERMAN = [
    "straße",
    "größe",
    "über",
    "müller",
    "schön",
    "zurück",
    "köln",
    "frühstück",
    "verfügbarkeitsprüfung",
]


def word_of(number: int) -> str:
    number, text = number + 3, ""
    while number:
        text += SYLLABLES[number % 16]
        number //= 16
    return text


VOCABULARY = [word_of(number) for number in range(WORDS)]
WORD_WEIGHTS = list(itertools.accumulate(1 / (number + 1) for number in range(WORDS)))
CHAT_WEIGHTS = list(itertools.accumulate(1 / (number + 1) ** 0.8 for number in range(CHATS)))


def pick(weights: Sequence[float], source: random.Random) -> int:
    return min(len(weights) - 1, bisect.bisect(weights, source.random() * weights[-1]))


def iter_texts(count: int, source: random.Random) -> Iterator[str]:
    for _ in range(count):
        size, kind = 1 + min(39, int(source.expovariate(1 / 9))), source.random()
        if kind < 0.05:
            yield "".join(
                chr(0x4E00 + int(source.paretovariate(0.7) * 5) % 3000) for _ in range(size * 2)
            )
            continue
        words = [VOCABULARY[pick(WORD_WEIGHTS, source)] for _ in range(size)]
        yield " ".join([*words, source.choice(GERMAN)] if kind < 0.1 else words)


def iter_documents(count: int) -> Iterator[tuple[Document, int]]:
    """Yield documents, and the size of each text in bytes."""
    source = random.Random(7)
    for number, text in enumerate(iter_texts(count, source)):
        chat = f"g-{pick(CHAT_WEIGHTS, source)}"
        sender = f"user-{source.randrange(SENDERS)}"
        ts = 1_700_000_000_000_000 + number * 1_000
        yield Document(chat, number + 1, ts, sender, join_tokens(text)), len(text.encode())


def build(engine: Engine, count: int) -> dict[str, Any]:
    """Add the documents that the index does not have yet."""
    state = State(generation=2, rules=RULES_VERSION)
    engine.load()
    built = engine.measure().documents
    began, text_bytes, made = time.perf_counter(), 0, 0.0
    documents = itertools.islice(iter_documents(count), built, None)
    while batch := list(itertools.islice(documents, BATCH)):
        at = time.perf_counter()
        text_bytes += sum(size for _, size in batch)
        engine.apply(
            Changes(documents={DocumentRef(each.chat, each.seq): each for each, _ in batch}), state
        )
        engine.maintain()
        made += time.perf_counter() - at
    engine.maintain()
    stats = engine.measure()
    return {
        "messages": count,
        "added": count - built,
        "text_bytes_per_message": round(text_bytes / max(1, count - built), 1),
        "build_s": round(time.perf_counter() - began, 1),
        "engine_s": round(made, 1),
        "index_bytes_per_message": round(stats.bytes / count, 1),
    }


def percentiles(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1e3, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 2),
        "max_ms": round(ordered[-1] * 1e3, 2),
    }


def make_query(source: random.Random) -> str:
    words = [VOCABULARY[pick(WORD_WEIGHTS, source)] for _ in range(source.choice([1, 1, 2, 3]))]
    if source.random() < 1 / 3:
        return " ".join([*words[:-1], words[-1][: max(3, len(words[-1]) - 2)]])
    return " ".join(words) + " "


def time_queries(engine: Engine, count: int) -> dict[str, Any]:
    source, found = random.Random(3), {}
    for order in Order:
        for size in (20, 200, 1_000):
            times, hits = [], 0
            for _ in range(count):
                chats = [f"g-{each}" for each in source.sample(range(CHATS), size)]
                query = parse_query(make_query(source), "me")
                began = time.perf_counter()
                hits += len(engine.find(query, chats, order, 20, None, 0, WorkBudget(60)).hits)
                times.append(time.perf_counter() - began)
            found[f"{order}, {size} chats"] = {**percentiles(times), "hits": hits}
    return found


def time_changes(engine: Engine, count: int) -> dict[str, Any]:
    state = State(generation=2, rules=RULES_VERSION)
    refreshes, removals = [], []
    for number in range(20):
        place = DocumentRef("g-0", count + number + 1)
        ts = 1_800_000_000_000_000 + number
        document = Document("g-0", place.seq, ts, "user-1", f"fresh{number}")
        query = parse_query(f"fresh{number} ", "me")
        began = time.perf_counter()
        engine.apply(Changes(documents={place: document}), state)
        assert engine.find(query, ["g-0"], Order.NEWEST, 5, None, 0, WorkBudget(60)).hits
        refreshes.append(time.perf_counter() - began)
        began = time.perf_counter()
        engine.apply(Changes(removed={place}), state)
        assert not engine.find(query, ["g-0"], Order.NEWEST, 5, None, 0, WorkBudget(60)).hits
        removals.append(time.perf_counter() - began)
    began = time.perf_counter()
    erased = engine.erase_sender("user-7")
    is_first = True
    while not engine.compact(is_first=is_first):
        is_first = False
    return {
        "refresh": percentiles(refreshes),
        "removal": percentiles(removals),
        "erasure": {
            "documents": erased,
            "with_compaction_s": round(time.perf_counter() - began, 2),
        },
    }


@contextlib.contextmanager
def opened(engine: str, folder: Path) -> Iterator[Engine]:
    with contextlib.ExitStack() as servers:
        index = str(folder / "index")
        cold = Cold()
        if engine == "lancedb":
            s3 = Server(ministack_launch(folder / "s3", free_port(), service="s3"))
            servers.callback(s3.kill)
            s3.start()
            cold = cold_settings(s3.endpoint)
            asyncio.run(_make_bucket(cold))
            index = "s3"
        made = Settings(search=Search(index=index), cold=cold)
        yield open_engine(made, 0, is_writer=True)


async def _make_bucket(cold: Cold) -> None:
    async with open_s3(cold) as store:
        await apply_bucket(store, cold)


# live


async def measure_live(folder: Path) -> dict[str, Any]:
    workers = (("persist", "repair", "rpc"), ("search",))
    env = {"CHAT_SEARCH_INDEX": str(folder / "index")}
    with open_stack(folder / "stack", workers=workers, fsync="everysec", env=env) as stack:
        api = stack.start_api()
        await stack.add_users(["ann", "ben"])
        device = RawChat("ann", stack.port, stack.token, device="probe")
        await device.start()
        chat = (await device.request("open_direct", user="ben"))["chat"]["chat"]
        load = start_load(stack)
        await asyncio.sleep(3)
        headers = {"Authorization": f"Bearer {stack.token('ben')}"}
        async with httpx.AsyncClient(base_url=api.endpoint, headers=headers, timeout=30) as client:
            delays = await probe(device, chat, client)
            under_load = await time_requests(client)
            out, _ = await asyncio.to_thread(load.communicate)
            idle = await time_requests(client)
        lines = [line for line in out.decode().splitlines() if line.strip()]
        return {
            "rate": RATE,
            "findable": percentiles(delays),
            "request_under_load": under_load,
            "request_idle": idle,
            "load": [line.strip() for line in lines if "sent" in line or "rate" in line][:4],
        }


def start_load(stack: Stack) -> subprocess.Popen[bytes]:
    arguments = ["load", "direct", "--users", "100", "--rate", str(RATE)]
    arguments += ["--duration", str(LOAD_S), "--url", f"ws://127.0.0.1:{stack.port}/"]
    return subprocess.Popen(
        [*CLI, *arguments],
        env={**os.environ, **stack.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


async def probe(device: RawChat, chat: str, client: httpx.AsyncClient) -> list[float]:
    delays, until = [], time.perf_counter() + PROBES_S
    for number in itertools.count():
        if time.perf_counter() > until:
            return delays
        began = time.perf_counter()
        await device.send(chat, f"probe number{number}x lunch")
        while True:
            answer = await client.get("/v1/search", params={"q": f"number{number}x "})
            if answer.json()["items"]:
                break
            await asyncio.sleep(0.02)
        delays.append(time.perf_counter() - began)
        await asyncio.sleep(max(0.0, 0.5 - delays[-1]))
    return delays


async def time_requests(client: httpx.AsyncClient) -> dict[str, float]:
    times = []
    for number in range(100):
        query = ("lunch", "probe ", '"lunch"', f"number{number % 20}")[number % 4]
        began = time.perf_counter()
        answer = await client.get("/v1/search", params={"q": query})
        times.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
    return percentiles(times)


@click.command()
@click.option("--messages", default=1_000_000)
@click.option("--engine", "name", type=click.Choice(["sqlite", "lancedb"]), default="sqlite")
@click.option("--live", is_flag=True)
@click.option("--folder", type=click.Path(path_type=Path))
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, default=PARTS)
@click.option("--queries", default=QUERIES, help="Queries per size and order.")
@out_option
def main(
    *,
    messages: int,
    name: str,
    live: bool,
    folder: Path | None,
    parts: tuple[str, ...],
    queries: int,
    out: Path | None,
) -> None:
    """Measure; see the module docstring. A file that exists keeps its other figures."""
    whole = json.loads(out.read_text()) if out is not None and out.exists() else {}
    result = whole.setdefault(name, {})
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "stack").mkdir(parents=True, exist_ok=True)
        with opened(name, folder) as engine:
            if "build" in parts:
                result |= build(engine, messages)
            if "queries" in parts:
                result["queries"] = time_queries(engine, queries)
            if "changes" in parts:
                result["changes"] = time_changes(engine, messages)
            peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            result["rss_mb"] = round(peak_kb / 1024)
            engine.close()
        if live:
            result["live"] = asyncio.run(measure_live(folder))
    write_figures(whole, out)
    json.dump(result, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
