"""HTTP proxy that injects AWS faults in front of a DynamoDB API server.

It runs in the test's own event loop, between real processes and the real server. Each call is
matched against `rules` in order, and the first match determines its fault; unmatched calls pass.

| fault    | the caller sees                                        | the server has done |
|----------|--------------------------------------------------------|---------------------|
| `Refuse` | an error of DynamoDB: throttled, 500, 503              | nothing             |
| `Partly` | `UnprocessedItems`: the writes that are held back      | the others          |
| `Hang`   | nothing, until it closes the connection                | all or nothing      |
| `Cut`    | half an answer, then a closed connection               | all                 |

`calls` records all calls, in order, with their faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Self

_HEAD_END = b"\r\n\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error."""

    code: str
    status: int = 400


@dataclasses.dataclass(frozen=True, slots=True)
class Partly:
    """Return the items of a BatchWriteItem for which `holds_back` is true as unprocessed."""

    holds_back: Callable[[dict[str, Any]], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Hang:
    """Never respond. With `is_done` the server still executes the call."""

    is_done: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """Send half of the response and close the connection."""


Fault = Refuse | Partly | Hang | Cut


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A request: its operation, its body, and the chats of its messages."""

    operation: str
    body: dict[str, Any]

    @property
    def chats(self) -> set[str]:
        return set(_chats_in(self.body))


Rule = Callable[[Call], Fault | None]


class DynamoProxy:
    """Forwards calls to one port. Use as an async context manager."""

    def __init__(self, endpoint: str) -> None:
        self._target = int(endpoint.rpartition(":")[2])
        self.rules: list[Rule] = []
        self.calls: list[tuple[Call, Fault | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def calls_with(self, kind: type[Any]) -> list[Call]:
        """Return the calls that got a fault of this kind."""
        return [call for call, fault in self.calls if isinstance(fault, kind)]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._pass_one(reader, writer, far_reader, far_writer):
                    pass
        finally:
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pass_one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> bool:
        """Handle a request; return False if the connection ends."""
        head, raw = await _read_message(reader)
        call = Call(_header(head, "x-amz-target").rpartition(".")[2], json.loads(raw or b"{}"))
        fault = next((made for rule in self.rules if (made := rule(call)) is not None), None)
        self.calls.append((call, fault))
        left: dict[str, Any] = {}
        match fault:
            case Refuse(code, status):
                body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected"}
                writer.write(_answer(status, json.dumps(body).encode()))
                await writer.drain()
                return True
            case Partly(holds_back):
                passed, left = _split(call.body, holds_back)
                if not passed:  # the server rejects an empty batch
                    writer.write(_answer(200, json.dumps({"UnprocessedItems": left}).encode()))
                    await writer.drain()
                    return True
                raw = json.dumps({**call.body, "RequestItems": passed}).encode()
            case Hang(is_done=False):
                await reader.read()  # wait until the client closes the connection
                return False
        far_writer.write(_with_length(head, len(raw)) + raw)
        far_head, far_body = await _read_message(far_reader)
        match fault:
            case Hang():
                await reader.read()
                return False
            case Cut():
                whole = far_head + far_body
                writer.write(whole[: len(far_head) + len(far_body) // 2])
                await writer.drain()
                return False
            case Partly() if far_head.split(maxsplit=2)[1] == b"200":
                # The server may also leave items unprocessed.
                answer = json.loads(far_body)
                for table, writes in answer.get("UnprocessedItems", {}).items():
                    left.setdefault(table, []).extend(writes)
                answer["UnprocessedItems"] = left
                writer.write(_answer(200, json.dumps(answer).encode()))
            case _:
                writer.write(far_head + far_body)
        await writer.drain()
        return True


# rules


def on_chat(chat: str, fault: Fault) -> Rule:
    """Apply `fault` to all calls about a chat; throttled batches lose only the chat's items."""

    def rule(call: Call) -> Fault | None:
        if chat not in call.chats:
            return None
        if isinstance(fault, Refuse) and call.operation == "BatchWriteItem":
            return Partly(lambda item: chat in _chats_in(item))
        return fault

    return rule


class Storm:
    """Applies seeded random faults to a share of the writes, without long runs of one outcome."""

    def __init__(self, seed: int, share: float) -> None:
        self._dice = random.Random(seed)
        self.share = share

    def __call__(self, call: Call) -> Fault | None:
        rng = self._dice
        if call.operation not in ("BatchWriteItem", "UpdateItem", "PutItem", "GetItem"):
            return None
        if rng.random() >= self.share:
            return None
        faults: list[Fault] = [
            Refuse("ProvisionedThroughputExceededException"),
            Refuse("ThrottlingException"),
            Refuse("InternalServerError", 500),
            Refuse("ServiceUnavailable", 503),
            Hang(is_done=False),
            Hang(is_done=True),
            Cut(),
        ]
        if call.operation == "BatchWriteItem":
            faults += [Partly(lambda _: rng.random() < 0.5)] * 4
        return rng.choice(faults)


# HTTP and JSON


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(_HEAD_END)
    return head, await reader.readexactly(int(_header(head, "content-length") or 0))


def _header(head: bytes, name: str) -> str:
    for line in head.decode("latin-1").split("\r\n"):
        found, _, value = line.partition(":")
        if found.strip().lower() == name:
            return value.strip()
    return ""


def _with_length(head: bytes, length: int) -> bytes:
    lines = [
        line
        for line in head.removesuffix(_HEAD_END).split(b"\r\n")
        if not line.lower().startswith(b"content-length:")
    ]
    return b"\r\n".join([*lines, b"Content-Length: %d" % length]) + _HEAD_END


def _answer(status: int, body: bytes) -> bytes:
    return (
        b"HTTP/1.1 %d Injected\r\nContent-Type: application/x-amz-json-1.0\r\n"
        b"x-amzn-RequestId: injected\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
    )


def _split(
    body: dict[str, Any], holds_back: Callable[[dict[str, Any]], bool]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the writes that pass and those that are held back, by table."""
    passed: dict[str, Any] = {}
    left: dict[str, Any] = {}
    for table, writes in body["RequestItems"].items():
        for write in writes:
            (left if holds_back(write) else passed).setdefault(table, []).append(write)
    return passed, left


def _chats_in(value: Any) -> Iterator[str]:
    """Yield the keys of `messages` in a request."""
    if isinstance(value, list):
        for each in value:
            yield from _chats_in(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in ("chatid", ":chat", ":pk") and isinstance(each, dict) and "S" in each:
                yield each["S"]
            else:
                yield from _chats_in(each)
