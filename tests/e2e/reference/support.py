"""Clients of a running server that do not use the code of the project.

They use only HTTP, WebSocket, the command line, `boto3` and `redis`; `tests/unit/docs` checks that
only the fixture in this folder imports the product.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import boto3  # type: ignore[import-untyped]  # no type information
import httpx
import redis
from boto3.dynamodb.conditions import ConditionBase, Key  # type: ignore[import-untyped]
from websockets.sync.client import ClientConnection, connect

from tests.support.fork_server import CLI, run_process, start_process
from tests.support.servers.ports import free_port

HOST = "127.0.0.1"
DEADLINE_S = 60.0  # only a failure takes this long
COMMAND_S = 300.0  # deadline of a command
PASSWORD = "correct horse 7 battery"
# These settings cause within a test what would otherwise need a day or many users.
ARCHIVED_MIN = 200  # messages of an archive segment; only one test sends so many to a chat
IN_FLIGHT_MAX = 50  # unanswered sends of one device
LARGE_ABOVE = 6  # members
MERGED_ABOVE = 3  # followers
INLINE_BYTES_MAX = 1024
SETTINGS = {
    "CHAT_ARCHIVE_RETENTION_S": "1",
    "CHAT_ARCHIVE_SWEEP_INTERVAL_S": "1",
    "CHAT_ARCHIVE_SEGMENT_ENTRIES_MIN": str(ARCHIVED_MIN),
    "CHAT_AUTH_ARGON2_MEMORY_KIB": "8",
    "CHAT_CHATS_FANOUT_MEMBERS_MAX": str(LARGE_ABOVE),
    "CHAT_LIMITS_ENTRIES": "1000/s burst 10000",
    "CHAT_NOTIFY_DELAY_S": "0.1",
    "CHAT_REDIS_INBOX_MAX": "10",
    "CHAT_REDIS_LOG_MAX": "10",
    "CHAT_TIMELINE_FANOUT_FOLLOWERS_MAX": str(MERGED_ABOVE),
    "CHAT_WARM_BODY_INLINE_BYTES_MAX": str(INLINE_BYTES_MAX),
    "CHAT_WARM_STREAM": "true",
}
AWS = {
    "region_name": "us-east-1",
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local-secret",
}
_SCOPES = (
    "chats:read",
    "companions:read",
    "companions:write",
    "moderate",
    "operate",
    "users:read",
    "users:write",
)
T = TypeVar("T")


def wait_for(find: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Call `find` until it returns a true value, and return it."""
    give_up = time.monotonic() + deadline_s
    while not (found := find()):
        assert time.monotonic() < give_up, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Addresses:
    api: int
    gateway: int
    redis: int
    dynamodb: int
    s3: int
    settings: Path


class Client:
    """HTTP calls with a token or an API key. `as_user` is the user for whom a key acts."""

    def __init__(self, port: int, token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=f"http://{HOST}:{port}", headers=headers, timeout=DEADLINE_S
        )

    def call(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """Send a request and return the response, whatever its status."""
        return self._http.request(method, path, json=body, **options)

    def get(self, path: str, **params: Any) -> Any:
        """GET; `from_` is the parameter `from`."""
        return self._request_json(
            "GET", path, params={name.rstrip("_"): v for name, v in params.items()}
        )

    def post(self, path: str, body: object = None) -> Any:
        return self._request_json("POST", path, body)

    def put(self, path: str, body: object = None) -> Any:
        return self._request_json("PUT", path, body)

    def patch(self, path: str, body: object = None) -> Any:
        return self._request_json("PATCH", path, body)

    def delete(self, path: str, body: object = None) -> Any:
        return self._request_json("DELETE", path, body)

    def get_refusal(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Send a request that must fail; return its status and error code."""
        response = self.call(method, path, body)
        assert response.is_error, response.text
        return response.status_code, response.json()["code"]

    def pages(self, path: str, **params: Any) -> list[Any]:
        """Return the items of all pages of a list."""
        items: list[Any] = []
        while True:
            page = self.get(path, **params)
            items += page["items"]
            if not page.get("next"):
                return items
            params["cursor"] = page["next"]

    def texts(self, path: str, **params: Any) -> list[str]:
        """Return the bodies of the messages of a list."""
        return [message["body"] for message in self.pages(path, **params)]

    def close(self) -> None:
        self._http.close()

    def _request_json(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        response = self.call(method, path, body, **options)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None


class User(Client):
    """A registered user."""

    def __init__(self, addresses: Addresses, granted: Mapping[str, Any]) -> None:
        super().__init__(addresses.api, granted["token"])
        self.id: str = granted["user"]
        self._token = granted["token"]
        self._gateway = f"ws://{HOST}:{addresses.gateway}/"

    def open_direct(self, other: User) -> str:
        return str(self.put(f"/v1/direct-chats/{other.id}")["chat"])

    def create_group(self, *members: User, name: str = "Team") -> str:
        ids = [member.id for member in members]
        return str(self.post("/v1/chats", {"members": ids, "name": name})["chat"])

    def send(self, chat: str, body: str, **more: Any) -> dict[str, Any]:
        """Send a message; return its position once DynamoDB has it.

        If a slow machine responds `unavailable`, the same `ref` is sent again.
        """
        message = {"ref": secrets.token_hex(8), "body": body, "durability": "stored", **more}

        def attempt() -> httpx.Response | None:
            response = self.call("POST", f"/v1/chats/{chat}/messages", message)
            return None if response.status_code == httpx.codes.SERVICE_UNAVAILABLE else response

        response = wait_for(attempt, "the message is stored")
        assert response is not None and response.is_success, response
        placed: dict[str, Any] = response.json()
        return placed

    def pins(self, chat: str) -> list[str]:
        """Return the texts of the pinned messages, newest first."""
        return [pin["message"]["body"] for pin in self.pages(f"/v1/chats/{chat}/pins")]

    @contextlib.contextmanager
    def connect(self, device: str = "phone", **hello: Any) -> Iterator[Socket]:
        """Open a WebSocket session of a device."""
        with connect(self._gateway, subprotocols=["chat.v1"]) as connection:  # type: ignore[list-item]
            socket = Socket(connection)
            socket.send("hello", v=1, token=self._token, device=device, **hello)
            socket.welcome = socket.wait_for(type="welcome")
            yield socket


class Socket:
    """A WebSocket session: JSON frames of `chat.v1`."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._ids = itertools.count(1)
        self._frames: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}

    def send(self, kind: str, **fields: Any) -> None:
        """Send a frame without waiting."""
        self._connection.send(json.dumps({"type": kind, **fields}))

    def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its response."""
        number = next(self._ids)
        self.send(kind, id=number, **fields)
        return self.wait_for(id=number)

    def wait_for(self, **fields: Any) -> dict[str, Any]:
        """Return the first unread frame with these fields; earlier frames stay unread."""
        give_up = time.monotonic() + DEADLINE_S
        seen = 0
        while True:
            for place in range(seen, len(self._frames)):
                if _has(self._frames[place], fields):
                    return self._frames.pop(place)
            seen = len(self._frames)
            left_s = give_up - time.monotonic()
            assert left_s > 0, f"no frame {fields} among {self._frames}"
            with contextlib.suppress(TimeoutError):
                self._frames.append(json.loads(self._connection.recv(left_s)))

    def send_messages(self, chat: str, texts: Sequence[str]) -> list[dict[str, Any]]:
        acks = []
        for start in range(0, len(texts), IN_FLIGHT_MAX):
            part = {secrets.token_hex(8): text for text in texts[start : start + IN_FLIGHT_MAX]}
            for ref, text in part.items():
                self.send("send", id=next(self._ids), chat=chat, ref=ref, body=text)
            acks += [self.wait_for(type="ack", ref=ref) for ref in part]
        return acks


def _has(frame: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    return all(frame.get(name) == value for name, value in fields.items())


class Server:
    """A running server and its stores. Close it with `with`."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self.redis: redis.Redis = redis.Redis(
            host=HOST, port=addresses.redis, decode_responses=True
        )
        endpoint = f"http://{HOST}:{addresses.dynamodb}"
        self.dynamodb = boto3.resource("dynamodb", endpoint_url=endpoint, **AWS)
        self.raw_dynamodb = boto3.client("dynamodb", endpoint_url=endpoint, **AWS)
        self.s3 = boto3.client("s3", endpoint_url=f"http://{HOST}:{addresses.s3}", **AWS)
        self.bucket = "chatserver"
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self._clients:
            client.close()
        self.redis.close()

    # users

    @property
    def public(self) -> Client:
        return self._register(Client(self.addresses.api))

    def add_user(self, stem: str = "user") -> User:
        name = f"{stem}-{secrets.token_hex(4)}"
        granted = self.public.post("/v1/auth/register", {"user": name, "password": PASSWORD})
        user = User(self.addresses, granted)
        self._register(user)
        return user

    def add_users(self, count: int) -> list[User]:
        return [self.add_user() for _ in range(count)]

    @functools.cached_property
    def host_application(self) -> Client:
        """A client of the host application's server, with an API key."""
        scopes = itertools.chain.from_iterable(("--scope", scope) for scope in _SCOPES)
        printed = self.command("keys", "create", "--name", "reference", *scopes)
        return self._register(Client(self.addresses.api, printed.split()[-1]))

    def add_companion(self, model: str = "facts") -> str:
        """Create an AI companion with a scripted model; return its id."""
        body = {"name": "Ada", "provider": "scripted", "model": model, "prompt": "Be brief."}
        return str(self.host_application.post("/v1/companions", body)["id"])

    def _register(self, client: Any) -> Any:
        self._clients.append(client)
        return client

    # the command line

    @functools.cached_property
    def environment(self) -> dict[str, str]:
        """The environment of a shell that ran `. .dev/settings.env`."""
        lines = self.addresses.settings.read_text("utf-8").splitlines()
        pairs = (shlex.split(line)[1].split("=", 1) for line in lines)
        return {**os.environ, **dict(pairs)}

    def command(self, *args: str, **settings: str) -> str:
        command = [*CLI, *args]
        done = run_process(command, {**self.environment, **settings}, COMMAND_S)
        assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
        return done.stdout

    def redis_url(self, database: int) -> str:
        """Return the URL of another database of the same Redis."""
        return f"redis://{HOST}:{self.addresses.redis}/{database}"

    # DynamoDB

    def item(self, table: str, **key: Any) -> dict[str, Any] | None:
        """Return an item by its key, or None."""
        got = self.dynamodb.Table(f"chat_{table}").get_item(Key=key, ConsistentRead=True)
        found: dict[str, Any] | None = got.get("Item")
        return found

    def query(
        self, table: str, condition: ConditionBase, index: str = "", **options: Any
    ) -> list[dict[str, Any]]:
        """Return all items of a Query, of a table (consistent) or an index."""
        read = {"IndexName": index} if index else {"ConsistentRead": True}
        answer = self.dynamodb.Table(f"chat_{table}").query(
            KeyConditionExpression=condition, **read, **options
        )
        assert "LastEvaluatedKey" not in answer or "Limit" in options, "more than a page"
        items: list[dict[str, Any]] = answer["Items"]
        return items

    def rows(self, table: str, partition: str, prefix: str = "") -> list[dict[str, Any]]:
        """Return the items of a partition of a table with `PK` and `SK`, by sort key."""
        condition = Key("PK").eq(partition)
        return self.query(table, condition & Key("SK").begins_with(prefix) if prefix else condition)

    def sort_keys(self, table: str, partition: str, prefix: str = "") -> list[str]:
        return [row["SK"] for row in self.rows(table, partition, prefix)]

    def messages(self, chat: str) -> list[dict[str, Any]]:
        return self.query("messages", Key("chatid").eq(chat))

    def describe(self, table: str) -> dict[str, Any]:
        answer = self.dynamodb.meta.client.describe_table(TableName=f"chat_{table}")
        found: dict[str, Any] = answer["Table"]
        return found

    def expiry_of(self, table: str) -> str:
        client = self.dynamodb.meta.client
        answer = client.describe_time_to_live(TableName=f"chat_{table}")
        return str(answer["TimeToLiveDescription"].get("AttributeName", ""))

    def removed(self, table: str) -> list[dict[str, Any]]:
        streams = boto3.client(
            "dynamodbstreams", endpoint_url=f"http://{HOST}:{self.addresses.dynamodb}", **AWS
        )
        arn = self.describe(table)["LatestStreamArn"]
        images: list[dict[str, Any]] = []
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            iterator = streams.get_shard_iterator(
                StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while iterator:
                page = streams.get_records(ShardIterator=iterator)
                records = page["Records"]
                images += [
                    each["dynamodb"]["OldImage"]
                    for each in records
                    if each["eventName"] == "REMOVE"
                ]
                iterator = page.get("NextShardIterator") if records else None
        return images

    # Redis and S3

    def redis_key(self, suffix: str) -> str:
        """Return the full key of a user or chat. Its hash tag depends on the partition."""
        keys: list[str] = list(self.redis.scan_iter(f"{{p*}}:{suffix}", count=10_000))
        assert len(keys) <= 1, keys
        return keys[0] if keys else ""

    def inbox(self, user: User) -> list[dict[str, str]]:
        """Return the entries of a user's inbox in Redis, oldest first."""
        return [fields for _, fields in self.redis.xrange(self.redis_key(f"inbox:{user.id}"))]

    def objects(self, prefix: str) -> list[str]:
        """Return the keys of the objects below a prefix."""
        answer = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for each in answer.get("Contents", ())]

    def upload(self, user: User, chat: str, content: bytes, name: str) -> str:
        """Upload a file to a chat, as a browser does; return its id."""
        file = {
            "name": name,
            "type": "application/octet-stream",
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        form = user.post(f"/v1/chats/{chat}/attachments", file)
        done = httpx.post(
            form["url"], data=form["fields"], files={"file": content}, timeout=DEADLINE_S
        )
        assert done.is_success, done.text
        user.post(f"/v1/attachments/{form['id']}/complete")
        return str(form["id"])

    def download(self, url: str) -> bytes:
        """Download a file through a link, as a browser does."""
        return httpx.get(url, timeout=DEADLINE_S).raise_for_status().content

    def read_object(self, key: str) -> bytes:
        content: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content


@contextlib.contextmanager
def open_api(server: Server, **settings: str) -> Iterator[int]:
    """Start another `chatserver api` with other settings; yield its port."""
    port = free_port()
    address = {"CHAT_API_HOST": HOST, "CHAT_API_PORT": str(port)}
    environment = {**server.environment, **address, **settings}
    with Path(os.devnull).open("wb") as output:
        process = start_process([*CLI, "api"], environment, output)
    try:
        with httpx.Client(base_url=f"http://{HOST}:{port}") as client:
            wait_for(lambda: _is_up(client), "the API is ready")
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx.TransportError:
        return False


def keys_of(description: Mapping[str, Any]) -> list[str]:
    """Return the key attributes of a table or index, partition key first."""
    return [each["AttributeName"] for each in description["KeySchema"]]


def indexes_of(description: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the global indexes of a table by name."""
    return {each["IndexName"]: each for each in description.get("GlobalSecondaryIndexes", ())}
