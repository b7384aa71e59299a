"""Test servers for the streaming formats of AI models: Bedrock event streams and OpenAI SSE.

Written from the format specifications, without the SDKs under test: an event is framed with its
lengths and two CRCs (``application/vnd.amazon.eventstream``), a chunk is a line of JSON after
``data:``. A test sets the behavior as a list of steps for each call. Requests are checked against
the published shapes (`model_requests`); `faults` has what is wrong with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from tests.support.servers.model_requests import (
    check_completion_request,
    check_converse_request,
)


@dataclasses.dataclass(frozen=True)
class Refuse:
    """Respond with an error instead of a stream."""

    status: int
    name: str = ""
    body: dict[str, Any] = dataclasses.field(default_factory=lambda: {"message": "no"})


class Hang:
    """Send nothing more and keep the connection open."""


class Cut:
    """Abort the connection in the middle of the response."""


Step = bytes | Refuse | Hang | Cut


@dataclasses.dataclass
class ModelServer:
    """A server on a separate port; `calls` are the paths and bodies of its requests."""

    media_type: str
    url: str = ""
    scripts: list[list[Step]] = dataclasses.field(default_factory=list)
    # Instead of scripts: returns the response to a call from its path and body.
    respond: Callable[[str, dict[str, Any]], Step] | None = None
    calls: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    headers: list[dict[str, str]] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)  # invalid requests
    gone: int = 0  # clients that disconnected before the end

    def set_responses(self, *steps: Step) -> None:
        """Set the response to the next call; the last script applies to all further calls."""
        self.scripts.append(list(steps))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to a call with the steps of its script."""
        body = await request.json()
        self.calls.append((request.path, body))
        try:
            if request.path.endswith("/converse-stream"):
                check_converse_request(request.path, body)
            elif request.path.endswith("/chat/completions"):
                check_completion_request(body)
        except (AssertionError, ValueError) as exc:
            self.faults.append(str(exc))
            return web.json_response({"message": str(exc)}, status=400)
        self.headers.append(dict(request.headers))
        if self.respond is not None:
            steps = [self.respond(request.path, body)]
        else:
            steps = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if isinstance(steps[0], Refuse):
            refusal = steps[0]
            headers = {"x-amzn-errortype": refusal.name} if refusal.name else {}
            return web.json_response(refusal.body, status=refusal.status, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": self.media_type})
        await response.prepare(request)
        try:
            for step in steps:
                if isinstance(step, bytes):
                    await response.write(step)
                elif isinstance(step, Hang):
                    await asyncio.Event().wait()
                else:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
        except (ConnectionError, asyncio.CancelledError):
            self.gone += 1
            raise
        await response.write_eof()
        return response


@contextlib.asynccontextmanager
async def open_model_server(media_type: str) -> AsyncIterator[ModelServer]:
    """Run a server until the block ends."""
    server = ModelServer(media_type)
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


# Bedrock

EVENT_STREAM = "application/vnd.amazon.eventstream"


def frame_of(headers: dict[str, str], payload: bytes) -> bytes:
    """Encode an event stream message: lengths, CRC, headers of type string, payload, CRC."""
    block = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07"
        + struct.pack("!H", len(value)) + value.encode()
        for name, value in headers.items()
    )  # fmt: skip
    prelude = struct.pack("!II", 16 + len(block) + len(payload), len(block))
    prelude += struct.pack("!I", zlib.crc32(prelude))
    message = prelude + block + payload
    return message + struct.pack("!I", zlib.crc32(message))


def event(kind: str, **fields: Any) -> bytes:
    """Return an event of `ConverseStream`."""
    headers = {
        ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return frame_of(headers, json.dumps(fields).encode())


def exception_event(kind: str, message: str = "no") -> bytes:
    """Return an exception event in the middle of a stream."""
    headers = {
        ":exception-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame_of(headers, json.dumps({"message": message}).encode())


def block_delta(text: str) -> bytes:
    """Return a delta."""
    return event("contentBlockDelta", contentBlockIndex=0, delta={"text": text})


def bedrock_answer(*texts: str, stop: str = "end_turn", usage: tuple[int, int] = (7, 3)) -> bytes:
    """Return a complete response in the Bedrock format."""
    total = {"inputTokens": usage[0], "outputTokens": usage[1], "totalTokens": sum(usage)}
    return b"".join(
        [
            event("messageStart", role="assistant"),
            *map(block_delta, texts),
            event("contentBlockStop", contentBlockIndex=0),
            event("messageStop", stopReason=stop),
            event("metadata", usage=total, metrics={"latencyMs": 5}),
        ]
    )


def bedrock_tool_use(*uses: tuple[str, str, str], text: str = "") -> bytes:
    """Return a response with tool calls (id, name, input as JSON); the input is in two parts."""
    parts = [event("messageStart", role="assistant")]
    if text:
        parts += [block_delta(text), event("contentBlockStop", contentBlockIndex=0)]
    for index, (id_, name, given) in enumerate(uses, 1):
        start = {"toolUse": {"toolUseId": id_, "name": name}}
        parts.append(event("contentBlockStart", contentBlockIndex=index, start=start))
        for piece in (given[:5], given[5:]):
            delta = {"toolUse": {"input": piece}}
            parts.append(event("contentBlockDelta", contentBlockIndex=index, delta=delta))
        parts.append(event("contentBlockStop", contentBlockIndex=index))
    usage = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
    parts.append(event("messageStop", stopReason="tool_use"))
    parts.append(event("metadata", usage=usage, metrics={"latencyMs": 5}))
    return b"".join(parts)


# OpenAI

SSE = "text/event-stream"
DONE = b"data: [DONE]\n\n"


def chunk(
    delta: dict[str, Any] | None = None,
    finish: str | None = None,
    usage: tuple[int, int] | None = None,
) -> bytes:
    """Return a chunk of a chat completion; without a delta, the chunk with the usage."""
    body: dict[str, Any] = {
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
    }  # fmt: skip
    if delta is not None:
        body["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    if usage is not None:
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        body["usage"] = dict(zip(names, (*usage, sum(usage)), strict=True))
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def openai_tool_calls(*calls: tuple[str, str, str], text: str = "") -> bytes:
    """Return a response with tool calls (id, name, arguments); the arguments are in two parts."""
    chunks = [chunk({"role": "assistant", "content": text or None})]
    for index, (id_, name, given) in enumerate(calls):
        head = {"index": index, "id": id_, "type": "function"}
        function = {"name": name, "arguments": given[:5]}
        chunks.append(chunk({"tool_calls": [{**head, "function": function}]}))
        rest = {"index": index, "function": {"arguments": given[5:]}}
        chunks.append(chunk({"tool_calls": [rest]}))
    return b"".join([*chunks, chunk({}, "tool_calls"), chunk(usage=(7, 3)), DONE])


def moderation(*, flagged: bool) -> Refuse:
    """Return the response of a moderation model."""
    result = {"flagged": flagged, "categories": {}, "category_scores": {}}
    return Refuse(200, body={"id": "m1", "model": "moderator", "results": [result]})


def openai_answer(*texts: str, finish: str = "stop") -> bytes:
    """Return a complete response in the OpenAI format."""
    chunks = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": t}) for t in texts)]
    return b"".join([*chunks, chunk({}, finish), chunk(usage=(7, 3)), DONE])
