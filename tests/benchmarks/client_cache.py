"""Speed and size of the SDK's message cache.

    python -m tests.benchmarks.client_cache [--messages 100000] [--runs 3] [--out F.json]

Writes messages of 100 characters in 100 chats as a client does, in saves of 500 events, then opens
the file as a new client and reads pages.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from chatserver.client import ChatClient, SqliteStore
from chatserver.client.cache.changes import Delivered
from chatserver.client.cache.sqlite_store import Owner
from chatserver.client.model import Entry
from chatserver.client.state_store import Saved
from tests.benchmarks.support.harness import Bench, Figures, benchmark

CHATS = 100
SAVE = 500
PAGES = 200


def entry_of(number: int) -> Entry:
    chat, seq = f"g-{number % CHATS:032d}", number // CHATS + 1
    ts = 1_795_248_000_000_000 + number
    names = (f"01KAJ5ZC2Y{number:016d}", f"user-{number % 7}", f"{number:024d}")
    return Entry(seq, ts, chat, *names, "text", f"{number:0100d}")


def write(path: Path, messages: int) -> float:
    """Write messages to a new cache; return the number of events written per second."""
    store = SqliteStore(path, entries_per_chat_max=messages, bytes_max=1 << 40)
    store.claim(Owner("alice", "server"))
    batches = [
        [Delivered((entry := entry_of(n)).chat, entry) for n in range(first, first + SAVE)]
        for first in range(0, messages, SAVE)
    ]
    began = time.perf_counter()
    for batch in batches:
        store.save_changes(Saved(), batch, {}, 0.0)
    took = time.perf_counter() - began
    store.close()
    return messages / took


async def open_and_read(path: Path, messages: int) -> tuple[float, float]:
    """Return the seconds to open the file offline and to read a page of 50."""
    store = SqliteStore(path, server="server", entries_per_chat_max=messages, bytes_max=1 << 40)
    began = time.perf_counter()
    async with ChatClient("ws://127.0.0.1:9/", "x", store=store, is_offline_first=True) as client:
        opened = time.perf_counter() - began
        assert len(client.known_chats) == CHATS
        began = time.perf_counter()
        for number in range(PAGES):
            top = messages // CHATS
            before = top - (number % max(1, top - 60))
            await client.history(f"g-{number % CHATS:032d}", before=before)
        return opened, (time.perf_counter() - began) / PAGES


@benchmark(click.option("--messages", default=100_000, show_default=True), runs=3)
async def main(bench: Bench, messages: int) -> Figures:
    path = bench.folder / "alice.db"
    written_per_s = write(path, messages)
    size = path.stat().st_size
    opened_s, page_s = await open_and_read(path, messages)
    return {
        "events_written_per_second": round(written_per_s),
        "file_bytes_per_message": round(size / messages),
        "open_ms": round(opened_s * 1000),
        "page_of_50_ms": round(page_s * 1000, 2),
    }


if __name__ == "__main__":
    main()
