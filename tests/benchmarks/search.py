"""Full-text search: build, size, queries, refresh and removal with a million messages.

    python -m tests.benchmarks.search [--messages 1000000] [--engine sqlite] [--queries 200]
        [--folder FOLDER] [--part build] [--part queries] [--part changes] [--out F.json]

With a folder, the index is kept, an interrupted build continues, and a later run can measure
another part.

*Texts* are generated: 1 to 40 words (10 on average) of a vocabulary of 50,000 by a Zipf
distribution, 5 % of them with a German word, and 5 % Chinese instead. 5,000 chats, their sizes by a
power law; 2,000 senders.

*Queries*: one to three words, as frequent as in the texts, the last one incomplete in a third of
the queries; users with 20, 200 and 1,000 chats. Time of the engine alone, in one thread.

`lancedb` uses a local S3 server.
"""

from __future__ import annotations

import bisect
import itertools
import random
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold, Settings
from chatserver.features.search.engines.registry import open_engine
from chatserver.features.search.model import (
    Document,
    DocumentRef,
    Engine,
    IndexChanges,
    IndexerState,
    IndexQuery,
    Order,
)
from chatserver.features.search.query import parse_query
from chatserver.features.search.settings import Search
from chatserver.features.search.tokenizer import RULES_VERSION
from chatserver.features.search.work_budget import WorkBudget
from chatserver.features.search.worker.index_changes import join_tokens
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.benchmarks.support.measurements import summarize_ms
from tests.integration.features.attachments.support import cold_settings

CHATS, SENDERS, WORDS = 5_000, 2_000, 50_000
BATCH = 1_000
PARTS = ("build", "queries", "changes")
SYLLABLES = ("ba", "ko", "li", "mu", "ne", "ra", "si", "to", "ve", "za", "chi", "dor", "fel", "gan",
             "hul", "jin")  # fmt: skip
GERMAN = ("straße", "größe", "über", "müller", "schön", "zurück", "köln", "frühstück",
          "verfügbarkeitsprüfung")  # fmt: skip


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


def build(engine: Engine, count: int) -> Figures:
    """Add the documents that the index does not have yet."""
    state = IndexerState(generation=2, rules=RULES_VERSION)
    engine.load()
    built = engine.measure().documents
    began, text_bytes, made = time.perf_counter(), 0, 0.0
    documents = itertools.islice(iter_documents(count), built, None)
    while batch := list(itertools.islice(documents, BATCH)):
        at = time.perf_counter()
        text_bytes += sum(size for _, size in batch)
        engine.apply(
            IndexChanges(documents={DocumentRef(each.chat, each.seq): each for each, _ in batch}),
            state,
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


def make_query(source: random.Random) -> str:
    words = [VOCABULARY[pick(WORD_WEIGHTS, source)] for _ in range(source.choice([1, 1, 2, 3]))]
    if source.random() < 1 / 3:
        return " ".join([*words[:-1], words[-1][: max(3, len(words[-1]) - 2)]])
    return " ".join(words) + " "


def time_queries(engine: Engine, count: int) -> Figures:
    source, found = random.Random(3), {}
    for order in Order:
        for size in (20, 200, 1_000):
            times, hits = [], 0
            for _ in range(count):
                chats = [f"g-{each}" for each in source.sample(range(CHATS), size)]
                query = parse_query(make_query(source), "me")
                began = time.perf_counter()
                hits += len(
                    engine.find(IndexQuery(query, chats, order, 20, None, 0, WorkBudget(60))).hits
                )
                times.append(time.perf_counter() - began)
            found[f"{order}, {size} chats"] = {**summarize_ms(times), "hits": hits}
    return found


def time_changes(engine: Engine, count: int) -> Figures:
    state = IndexerState(generation=2, rules=RULES_VERSION)
    refreshes, removals = [], []
    for number in range(20):
        place = DocumentRef("g-0", count + number + 1)
        ts = 1_800_000_000_000_000 + number
        document = Document("g-0", place.seq, ts, "user-1", f"fresh{number}")
        query = parse_query(f"fresh{number} ", "me")
        began = time.perf_counter()
        engine.apply(IndexChanges(documents={place: document}), state)
        assert engine.find(
            IndexQuery(query, ["g-0"], Order.NEWEST, 5, None, 0, WorkBudget(60))
        ).hits
        refreshes.append(time.perf_counter() - began)
        began = time.perf_counter()
        engine.apply(IndexChanges(removed={place}), state)
        assert not engine.find(
            IndexQuery(query, ["g-0"], Order.NEWEST, 5, None, 0, WorkBudget(60))
        ).hits
        removals.append(time.perf_counter() - began)
    began = time.perf_counter()
    erased = engine.erase_sender("user-7")
    is_first = True
    while not engine.compact(is_first=is_first):
        is_first = False
    return {
        "refresh": summarize_ms(refreshes),
        "removal": summarize_ms(removals),
        "erasure": {
            "documents": erased,
            "with_compaction_s": round(time.perf_counter() - began, 2),
        },
    }


async def make_bucket(cold: Cold) -> None:
    async with open_s3(cold) as store:
        await apply_bucket(store, cold)


@benchmark(
    click.option("--messages", default=1_000_000, show_default=True),
    click.option("--engine", "name", type=click.Choice(["sqlite", "lancedb"]), default="sqlite"),
    click.option("--folder", type=click.Path(path_type=Path)),
    click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, default=PARTS),
    click.option("--queries", default=200, show_default=True, help="Per size and order."),
)
async def main(
    bench: Bench,
    messages: int,
    name: str,
    folder: Path | None,
    parts: tuple[str, ...],
    queries: int,
) -> Figures:
    folder = folder or bench.folder
    settings = Settings(search=Search(index=str(folder / "index")))
    if name == "lancedb":
        cold = cold_settings(bench.start_s3(folder).endpoint)
        await make_bucket(cold)
        settings = Settings(search=Search(index="s3"), cold=cold)
    engine, figures = open_engine(settings, 0, is_writer=True), Figures()
    if "build" in parts:
        figures["build"] = build(engine, messages)
    if "queries" in parts:
        figures["queries"] = time_queries(engine, queries)
    if "changes" in parts:
        figures["changes"] = time_changes(engine, messages)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    engine.close()
    return {**figures, "rss_mb": round(peak_kb / 1024)}


if __name__ == "__main__":
    main()
