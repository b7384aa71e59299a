"""Tenant deployments on the servers of `tests.e2e.reference.support`, and searches in all stores.

A deployment has its own Redis database, gateway, API and workers; it shares the tables and the
bucket with the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import secrets
import signal
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # no type information
import redis
import zstandard

from tests.e2e.reference import support
from tests.e2e.reference.support import COMMAND_S, DEADLINE_S, HOST, Server, User, wait_for
from tests.support.fork_server import CLI, run_process, start_process
from tests.support.servers.ports import free_port

SETTINGS = {
    **support.SETTINGS,
    "CHAT_ANALYTICS_EXPORT": "texts",
    "CHAT_ARCHIVE_SEGMENT_ENTRIES_MIN": "1",
    "CHAT_ARCHIVE_WAIT_S": "0",
    "CHAT_AUTH_COOKIE_SECURE": "false",
    "CHAT_WEBHOOKS_SECRET": "s" * 32,
    "chatserver.features.privacy.worker.job_worker.POLL_S": "0.5",
    # No server listens on this port, so events stay in Redis.
    "CHAT_WEBHOOKS_EVENTS_URL": f"http://{HOST}:9/events",
}


class Deployment(Server):
    """The processes of one tenant."""

    def __init__(self, shared: Server, tenant: str, database: int, **settings: str) -> None:
        api, gateway = free_port(), free_port()
        super().__init__(dataclasses.replace(shared.addresses, api=api, gateway=gateway))
        self.tenant = tenant
        self.database = redis.Redis(host=HOST, port=shared.addresses.redis, db=database)
        self.environment = {
            **shared.environment,
            **SETTINGS,
            "CHAT_WARM_TENANT": tenant,
            "CHAT_REDIS_URL": shared.redis_url(database),
            "CHAT_API_HOST": HOST,
            "CHAT_API_PORT": str(api),
            "CHAT_GATEWAY_HOST": HOST,
            "CHAT_GATEWAY_PORT": str(gateway),
            **settings,
        }
        self.logs: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, folder: Path) -> None:
        """Start a gateway, the API and all workers; wait until they are ready."""
        for name, command in {
            "worker": ("worker", "all"),
            "api": ("api",),
            "gateway": ("gateway",),
        }.items():
            log = folder / f"{self.tenant}-{name}-{len(self.logs)}.log"
            self.logs.append(log)
            with log.open("wb") as output:
                process = start_process([*CLI, *command], self.environment, output)
            self._processes.append(process)
        for port in (self.addresses.api, self.addresses.gateway):
            wait_for(lambda port=port: _is_ready(port), f"{self.tenant} is ready at port {port}")

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(DEADLINE_S)
        self._processes.clear()

    def run(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `chatserver` and return the completed process, whatever its exit code."""
        return run_process([*CLI, *args], {**self.environment, **more}, COMMAND_S)

    def run_killed(self, failpoint: str, *args: str) -> None:
        """Run `chatserver` until it kills itself at a failpoint."""
        done = self.run(*args, CHAT_FAILPOINT=f"{failpoint}:kill")
        assert done.returncode == -signal.SIGKILL, (failpoint, done.returncode, done.stderr)

    # stored data of the tenant

    def iter_items(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each item of the tenant as it is stored, with its table."""
        for table, item in iter_all_items(self):
            partition = item["chatid"] if table == "chat_messages" else item["PK"]
            if partition["S"].startswith(f"{self.tenant}/"):
                yield table, item

    def objects_of(self, prefix: str = "") -> list[str]:
        return [
            key.removeprefix(f"{self.tenant}/")
            for key in list_all_keys(self)
            if key.startswith(f"{self.tenant}/{prefix}")
        ]


@contextlib.contextmanager
def open_deployment(
    shared: Server, tenant: str, database: int, folder: Path, **settings: str
) -> Iterator[Deployment]:
    """Create a tenant and run its processes until the block ends."""
    with Deployment(shared, tenant, database, **settings) as deployment:
        deployment.database.flushdb()
        deployment.command("tables", "apply")
        deployment.start(folder)
        try:
            yield deployment
        finally:
            deployment.stop()
            deployment.database.flushdb()
            deployment.database.close()


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://{HOST}:{port}/readyz", timeout=DEADLINE_S).is_success
    except httpx.TransportError:
        return False


@dataclasses.dataclass(slots=True)
class TenantData:
    """Users of a tenant with data in all features. Each name and text contains one of `marks`."""

    ann: User
    ben: User
    direct: str
    group: str
    marks: list[str]
    post: str


def create_data(deployment: Deployment, mark: str) -> TenantData:
    """Create users with data in all features; each name and text contains `mark`."""
    ann, ben = deployment.add_user(f"ann-{mark}"), deployment.add_user(f"ben-{mark}")
    ann.patch("/v1/me", {"name": f"Ann {mark}", "about": f"about {mark}"})
    direct, group = ann.open_direct(ben), ann.create_group(ben, name=f"Team {mark}")
    for chat in (direct, group):
        first = ann.send(chat, f"first {mark}")
        ann.patch(f"/v1/chats/{chat}/messages/{first['seq']}", {"body": f"edited {mark}"})
        file = deployment.upload(ann, chat, f"content {mark}".encode(), f"file {mark}.txt")
        ann.send(chat, f"with a file {mark}", attachments=[file])
        ben.send(chat, f"long {mark} " * 100)
        ann.send(chat, f"for a while {mark}", expires_s=3600)
        ann.put(f"/v1/chats/{chat}/pins/{first['seq']}")
        ben.put(f"/v1/me/favorites/messages/{chat}/{first['seq']}")
        ben.put(f"/v1/chats/{chat}/messages/{first['seq']}/report", {"reason": f"why {mark}"})
    deployment.upload(ann, direct, f"unsent {mark}".encode(), f"unsent {mark}.txt")
    ben.post("/v1/me/push-subscriptions", {"token": f"token-{mark}"})
    post = ann.post("/v1/me/posts", {"content": f"post {mark}"})["id"]
    ben.put(f"/v1/me/following/{ann.id}")
    ben.put(f"/v1/users/{ann.id}/posts/{post}/like")
    ben.put(f"/v1/me/favorites/posts/{ann.id}/{post}")
    companion = deployment.add_companion()
    session = ann.post(f"/v1/companions/{companion}/session")["chat"]["chat"]
    ann.send(session, f"question {mark}")
    with ben.connect() as device:
        device.request("mark", chat=direct, read=1)
        wait_for(lambda: len(ann.get(f"/v1/chats/{session}/messages")["messages"]) > 1, "an answer")
    return TenantData(ann, ben, direct, group, [mark, ann.id, ben.id], post)


def wait_for_all_tiers(deployment: Deployment) -> None:
    """Wait until the archive has segments; then write the Parquet files."""
    wait_for(lambda: deployment.objects_of("archive/"), f"{deployment.tenant} has archive segments")
    wait_for(lambda: _try_export(deployment), "the messages are exported", COMMAND_S)
    prefixes = {key.partition("/")[0] for key in deployment.objects_of()}
    assert prefixes >= {"analytics", "archive", "attachments"}, prefixes


def _try_export(deployment: Deployment) -> bool:
    """Export the Parquet files; return False if it is refused while messages change."""
    done = deployment.run("analytics", "export", "--warm")
    is_busy = "another process is exporting" in done.stderr or "postponed" in done.stderr
    assert done.returncode == 0 or is_busy, done.stderr
    return done.returncode == 0


def find_marks(
    server: Server,
    databases: Iterable[redis.Redis],
    marks: Iterable[str],
    folders: Iterable[Path] = (),
) -> list[str]:
    """Return all keys, tables and files that contain a mark: Redis, DynamoDB, S3, search indexes.

    Contents are also searched decoded. `folders` are those of embedded search indexes.
    """
    wanted = [mark.encode() for mark in marks]
    stores = (
        _iter_redis(databases),
        _iter_tables(server),
        _iter_bucket(server),
        _iter_indexes(folders),
    )
    return [
        place
        for found in stores
        for place, content in found
        if any(mark in content for mark in wanted)
    ]


def _iter_redis(databases: Iterable[redis.Redis]) -> Iterator[tuple[str, bytes]]:
    for database in databases:
        for key in database.scan_iter(count=1000):
            value = _read_key(database, key)
            yield (
                f"redis {key.decode(errors='replace')}",
                key + repr(value).encode() + b"".join(_flatten(value)),
            )


def _read_key(database: redis.Redis, key: bytes) -> Any:
    match database.type(key):
        case b"string":
            return database.get(key)
        case b"hash":
            return database.hgetall(key)
        case b"set":
            return database.smembers(key)
        case b"zset":
            return database.zrange(key, 0, -1, withscores=True)
        case b"stream":
            return database.xrange(key)
        case b"list":
            return database.lrange(key, 0, -1)
        case _:
            return None


def _flatten(value: Any) -> list[bytes]:
    match value:
        case bytes():
            return [value]
        case dict():
            return [part for pair in value.items() for each in pair for part in _flatten(each)]
        case list() | tuple() | set():
            return [part for each in value for part in _flatten(each)]
        case _:
            return []


def iter_all_items(server: Server) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each item of all tables in the DynamoDB format."""
    client = server.raw_dynamodb
    for table in client.list_tables()["TableNames"]:
        for page in client.get_paginator("scan").paginate(TableName=table):
            for item in page["Items"]:
                yield table, item


def _iter_tables(server: Server) -> Iterator[tuple[str, bytes]]:
    for table, item in iter_all_items(server):
        yield f"dynamodb {table}", json.dumps(item, ensure_ascii=False, default=repr).encode()


def list_all_keys(server: Server) -> list[str]:
    pages = server.s3.get_paginator("list_objects_v2").paginate(Bucket=server.bucket)
    return [each["Key"] for page in pages for each in page.get("Contents", ())]


def _iter_bucket(server: Server) -> Iterator[tuple[str, bytes]]:
    for key in list_all_keys(server):
        try:
            content = server.read_object(key)
        except server.s3.exceptions.NoSuchKey:
            continue  # a worker removed the object meanwhile
        decoded = b""
        if key.endswith(".zst"):
            decoded = zstandard.ZstdDecompressor().decompress(content)
        elif key.endswith(".parquet"):
            decoded = repr(pq.read_table(io.BytesIO(content)).to_pylist()).encode()
        yield f"s3 {key}", key.encode() + content + decoded


def _iter_indexes(folders: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of SQLite indexes: as bytes, and decoded to rows and words."""
    for folder in folders:
        for file in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if file.is_file():
                    yield f"index {file.name}", file.read_bytes()
            if file.suffix == ".sqlite":
                yield f"index {file.name} decoded", _read_database(file)


def _read_database(file: Path) -> bytes:
    """Return all rows and terms.

    FTS5 compresses term prefixes, so a search of the bytes is not enough.
    """
    with contextlib.closing(sqlite3.connect(file, timeout=DEADLINE_S)) as database:
        tables = [
            name
            for name, sql in database.execute("SELECT name, sql FROM sqlite_master")
            if sql is not None and sql.upper().startswith("CREATE TABLE")
        ]
        found = [row for name in tables for row in database.execute(f"SELECT * FROM '{name}'")]
        database.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'words', 'row')")
        found += list(database.execute("SELECT term FROM temp.terms"))
    return repr(found).encode()


def new_mark() -> str:
    return f"mark{secrets.token_hex(6)}"
