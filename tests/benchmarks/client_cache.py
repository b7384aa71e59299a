"""Speed and size of the SDK's message cache.

    python -m tests.benchmarks.client_cache [MESSAGES]

Writes messages of 100 characters in 100 chats as a client does, in saves of 500 events, then opens
the file as a new client and reads pages. Prints the median of three runs.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from chatserver.client import ChatClient, SqliteStore
from chatserver.client.cache.changes import Delivered
from chatserver.client.cache.sqlite_store import Owner
from chatserver.client.model import Entry
from chatserver.client.state_store import Saved

CHATS = 100
SAVE = 500
PAGES = 200
RUNS = 3


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


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rates, opens, reads, size = [], [], [], 0
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "alice.db"
            rates.append(write(path, messages))
            size = path.stat().st_size
            opened, read = asyncio.run(open_and_read(path, messages))
            opens.append(opened)
            reads.append(read)
    print(f"messages {messages}")  # noqa: T201  # a command
    print(f"events written per second {statistics.median(rates):.0f}")  # noqa: T201
    print(f"file bytes per message {size / messages:.0f}")  # noqa: T201
    print(f"open ms {statistics.median(opens) * 1000:.0f}")  # noqa: T201
    print(f"page of 50, ms {statistics.median(reads) * 1000:.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
