"""Helpers of the search tests: a stack with an index, and searches over HTTP."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sqlite3
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from chatserver.config import Redis, Settings
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY, Server
from chatserver.features.search.settings import Search
from tests.integration.features.privacy.support import TIMEOUT_S, Person, Vault, open_vault
from tests.support.servers.processes import eventually, redis_client

if TYPE_CHECKING:
    import lancedb

ENGINES = ("sqlite", "lancedb")
INDEX = "CHAT_SEARCH_INDEX"
NewPerson = Callable[[str], Awaitable[Person]]


class SearchStack(NamedTuple):
    """A stack with an index of one of the engines."""

    vault: Vault
    engine: str
    folder: Path

    def index_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield all files of the index, read without product code."""
        if self.engine == "sqlite":
            for path in self.folder.rglob("*"):
                if path.is_file():
                    yield path.name, path.read_bytes()
            return
        for key, content in self.vault.iter_objects():
            if key.startswith("search/"):
                yield key, content

    def find_files_with(self, mark: str) -> list[str]:
        """Return the names of the index files that contain a mark."""
        return [name for name, content in self.index_files() if mark.encode() in content]

    def delete_leases(self) -> None:
        """Delete the leases of a killed indexer, so that the test does not wait for them."""
        with redis_client(self.vault.stack.redis_url) as client:
            for key in client.scan_iter("*lease:search*"):
                client.delete(key)

    def delete_position(self) -> None:
        """Delete the indexer's position in the backlog, as after a minute without an indexer."""
        with redis_client(self.vault.stack.redis_url) as client:
            for key in client.scan_iter("*checkpoint"):
                client.hdel(key, "indexed", "indexed_ms")

    def has_waiting(self) -> bool:
        """Return whether the backlog has entries that are not stored yet."""
        with redis_client(self.vault.stack.redis_url) as client:
            return any(client.xlen(key) for key in client.scan_iter("*backlog"))

    def start_indexer(self, failpoint: str = "") -> Server:
        """Start an indexer; if `failpoint` is given, it kills itself there."""
        return self.vault.start_worker("search", failpoint=failpoint)

    def stop_indexer(self) -> None:
        """Kill the indexer that was started last."""
        self.vault.stack.workers["search"].kill()
        self.delete_leases()

    async def archive(self) -> int:
        worker = await self.vault.stack.start_worker_async(
            "archive",
            CHAT_ARCHIVE_RETENTION_S="1",
            CHAT_ARCHIVE_SWEEP_INTERVAL_S="1",
            CHAT_ARCHIVE_SEGMENT_ENTRIES_MIN="1",
            CHAT_ARCHIVE_WAIT_S="0",
        )

        def count() -> int:
            keys = [key for key, _ in self.vault.iter_objects()]
            return sum(key.startswith("archive/") for key in keys)

        found = await eventually(count, what="the archive has a segment")
        worker.kill()
        return found

    def delete_documents(self, chat: str) -> None:
        """Delete two messages of a chat from the index."""
        if self.engine == "lancedb":
            table = self._connect().open_table("messages-0")
            table.delete(f"chat = '{chat}' AND seq IN (1, 3)")
            return
        (path,) = self.folder.rglob("*.sqlite")
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection, connection:
            chosen = "chat = (SELECT id FROM name WHERE name = ?) AND seq IN (1, 3)"
            connection.execute(f"DELETE FROM doc WHERE {chosen}", (chat,))

    def delete_files(self) -> None:
        if self.engine == "lancedb":
            self._connect().drop_table("messages-0")
        else:
            shutil.rmtree(self.folder)

    def _connect(self) -> lancedb.DBConnection:
        import lancedb  # takes two seconds, so not while tests are collected

        cold = self.vault.cold
        options = {"aws_endpoint": str(cold.endpoint), "allow_http": "true", "aws_region": REGION}
        options |= {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
        return lancedb.connect(f"s3://{cold.bucket}/search/v1", storage_options=options)

    @property
    def settings(self) -> Settings:
        search = Search(index=str(self.folder) if self.engine == "sqlite" else "s3")
        redis = Redis(url=self.vault.stack.redis_url)
        return Settings(
            search=search, redis=redis, warm=self.vault.stack.warm, cold=self.vault.cold
        )


@contextlib.asynccontextmanager
async def open_search_stack(folder: Path, engine: str, **more: str) -> AsyncIterator[SearchStack]:
    """Start a stack with a search index; tests start the indexer."""
    index = folder / "index"
    env = {INDEX: str(index) if engine == "sqlite" else "s3"}
    async with open_vault(folder, **env, **more) as vault:
        yield SearchStack(vault, engine, index)


@contextlib.asynccontextmanager
async def open_persons(search_stack: SearchStack) -> AsyncIterator[NewPerson]:
    """Open a factory of new users with an account."""
    async with contextlib.AsyncExitStack() as clients:

        async def make(stem: str) -> Person:
            client = httpx.AsyncClient(base_url=search_stack.vault.api.endpoint, timeout=TIMEOUT_S)
            clients.push_async_callback(client.aclose)
            made = Person(client, f"{stem}-{secrets.token_hex(4)}")
            await search_stack.vault.stack.add_users([made.user])
            made.token = search_stack.vault.stack.token(made.user)
            return made

        yield make


async def search(person: Person, text: str, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = await person.request(
        "GET", f"/v1/search?{urllib.parse.urlencode({'q': text, **query})}"
    )
    return found


async def search_texts(person: Person, text: str, **query: Any) -> list[str]:
    page = await search(person, text, **query)
    return [each["message"]["body"] for each in page["items"]]


async def wait_for_results(person: Person, text: str, count: int = 1) -> list[str]:
    """Wait until a search finds `count` messages; return their bodies."""

    async def has_found() -> list[str] | None:
        found = await search_texts(person, text, limit=50)
        assert len(found) == count, found
        return found or [""]

    found = await eventually(has_found, what=f"{count} results of {text!r}")
    assert found is not None
    return found


async def make_group(owner: Person, *members: str, **fields: Any) -> str:
    made = await owner.request("POST", "/v1/chats", 201, {"members": list(members), **fields})
    chat: str = made["chat"]
    return chat
