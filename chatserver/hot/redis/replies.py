"""Redis replies: error translation, and calls on one connection."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from chatserver.errors import (
    REDIS_DOWN,
    REDIS_REFUSES_WRITES,
    ChatError,
    ConfigError,
    CorruptData,
    Overloaded,
    Unavailable,
)
from chatserver.hot.redis.pipelined_connection import OnReply, PipelinedConnection, Reply
from chatserver.hot.redis.scripts import Value
from chatserver.telemetry.logs import RepeatLimit

log = structlog.get_logger()

_REFUSING = (
    "EXECABORT",
    "LOADING",
    "NOREPLICAS",
    "BUSY ",
    "MISCONF",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MOVED ",
    "ASK ",
)
_READ_ONLY = ("MISCONF", "NOREPLICAS", "READONLY")
FULL = "redis is full: maxmemory is reached; new messages are refused until memory is freed"
_refusals = RepeatLimit()
_NOT_ALLOWED = ("NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH")


class NoScript(ChatError):
    """Redis does not have the script loaded."""


def translate_reply_error(error: Exception) -> ChatError:
    """Return the `ChatError` for an error reply or a missing reply."""
    if isinstance(error, ChatError):
        return error
    text = str(error)
    if text.startswith("OOM"):
        return Overloaded(FULL, retry_after_ms=2000)
    if text.startswith(_REFUSING):
        if _refusals.is_due(text.partition(" ")[0]):
            log.warning("hot.call_refused", error=text)
        is_read_only = text.startswith(_READ_ONLY)
        public = REDIS_REFUSES_WRITES if is_read_only else REDIS_DOWN
        return Unavailable(f"redis: {text}", public=public)
    if text.startswith(_NOT_ALLOWED):
        return ConfigError(f"redis.url (CHAT_REDIS_URL): {text}")
    return CorruptData(f"redis: {text}")


def set_future(future: asyncio.Future[Any]) -> OnReply:
    """Return a callback that completes `future` with a reply, unless the future is done."""

    def on_reply(reply: Reply) -> None:
        if future.done():
            return
        if isinstance(reply, Exception):
            if str(reply).startswith("NOSCRIPT"):
                future.set_exception(NoScript(str(reply)))
            else:
                future.set_exception(translate_reply_error(reply))
        else:
            future.set_result(reply)

    return on_reply


async def call_on(wire: PipelinedConnection, *args: Value) -> Any:
    """Send a call on one connection and return its reply. Raises like `HotClient.call`."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    wire.send(set_future(future), *args)
    return await future
