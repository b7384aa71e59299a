"""What Redis answers, in our words; and a call on one connection."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from chatserver.errors import ChatError, ConfigError, CorruptData, Overloaded, Unavailable
from chatserver.hot.scripts import Value
from chatserver.hot.wire import OnReply, Reply, Wire

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
FULL = "redis is full: it has reached its maxmemory; new messages are refused until some is freed"
_NOT_ALLOWED = ("NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH")


class NoScript(ChatError):
    """Redis does not have the script (any more)."""


def translate_reply_error(error: Exception) -> ChatError:
    """Return our error for an error reply, or for a call that got none."""
    if isinstance(error, ChatError):
        return error
    text = str(error)
    if text.startswith("OOM"):
        return Overloaded(FULL, retry_after_ms=2000)
    if text.startswith(_REFUSING):
        return Unavailable(f"redis: {text}")
    if text.startswith(_NOT_ALLOWED):
        return ConfigError([f"redis.url (CHAT_REDIS_URL): {text}"])
    return CorruptData(f"redis: {text}")


@dataclasses.dataclass(frozen=True, slots=True)
class Durable:
    """Durability of a write before its acknowledgment: a number of replicas, and a disk."""

    replicas: int
    fsync: bool

    @property
    def is_on(self) -> bool:
        """True if anything is waited for."""
        return self.fsync or self.replicas > 0

    def command(self, wait_ms: int) -> tuple[Value, ...]:
        """Return the command to be sent behind a call."""
        if self.fsync:
            # Of a replica it is its disk that counts then, too.
            return ("WAITAOF", 1, self.replicas, wait_ms)
        return ("WAIT", self.replicas, wait_ms)

    def judge(self, reply: Reply, waited: Reply) -> Reply:
        """Return what a call has come to; `waited` is the answer to the command behind it."""
        if isinstance(reply, Exception):
            return reply
        if isinstance(waited, Exception):
            return waited
        disks, replicas = waited if self.fsync else (0, waited)
        if self.fsync and not disks:
            return Unavailable("redis: it is not on the disk yet; it may be lost")
        if replicas < self.replicas:
            have = f"{replicas} of {self.replicas} replicas have it"
            return Unavailable(f"redis: {have}; it may be lost")
        return reply


def set_future(future: asyncio.Future[Any]) -> OnReply:
    """Return what takes a reply for a future; one that nobody waits for any more is dropped."""

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


async def call_on(wire: Wire, *args: Value) -> Any:
    """Make a call on one connection and return its reply; raises as `HotClient.call`."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    wire.send(set_future(future), *args)
    return await future
