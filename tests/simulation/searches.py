"""Searches: the index is the product's own, in a folder of the run, and judged at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from chatserver.client import ChatClient
from tests.chaos.devices import SdkDevice
from tests.support.history.events import Final, LogEntry
from tests.support.history.violation import Violation

WORDS = ("says", "means")  # in the text of each message, and of each edit
INDEXED_S = 60.0  # after a loss, the index waits until everything is persisted, then catches up
PAGE = 20
_MEMORY = Path("/dev/shm")  # a commit waits for no disk


@contextlib.contextmanager
def open_folder() -> Iterator[str]:
    """Make a folder for the index, and the current one; return its path, the same in each run.

    Call it before time and randomness are replaced.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory("-index", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        os.chdir(folder)
        try:
            yield "index"
        finally:
            os.chdir(before)


async def check_searches(device: SdkDevice, finals: list[Final]) -> list[Violation]:
    """Search as a user until the results are the user's readable messages; return differences."""
    return [
        violation
        for word in WORDS
        for violation in await _check(device, word, _list_expected(finals, word))
    ]


def _list_expected(finals: list[Final], word: str) -> dict[tuple[str, int], str]:
    return {
        (final.chat, entry.seq): entry.body
        for final in finals
        for entry in final.entries
        if _is_searchable(entry) and word in entry.body.split()
    }


def _is_searchable(entry: LogEntry) -> bool:
    return entry.kind == "text" and not entry.deleted


async def _check(
    device: SdkDevice, word: str, expected: dict[tuple[str, int], str]
) -> list[Violation]:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + INDEXED_S
    while (found := await _search(device, word)) != expected:
        if loop.time() > give_up:
            lacks = sorted(expected.items() - found.items())
            more = sorted(found.items() - expected.items())
            text = f"{device.user} searches for {word}: lacks {lacks}, and finds {more}"
            return [Violation("SEARCH", text)]
        await asyncio.sleep(0.5)
    return []


async def _search(device: SdkDevice, word: str) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}

    async def search(client: ChatClient) -> None:
        found.clear()
        after: str | None = None
        while True:
            page = await client.search(word, after=after, limit=PAGE)
            for result in page.results:
                found[result.message.chat, result.message.seq] = result.message.body
            after = page.next
            if after is None:
                return

    code = await device.retry(search)
    return {("error", 0): code} if code else found
