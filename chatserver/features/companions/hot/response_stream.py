"""Redis stream of a response in progress, from which a device can read the text (`join_turn`).

Data: `{pN}:deltas:<chat>` (stream) holds the deltas (pieces of text) of the current or the last
response. Entry ids are `<index+1>-0`. The first entry (index 0) has the fields `u` (response id)
and `s` (seq of the answered message). The next entries have `t` (text), the last one `e` (how the
response ended). A restarted response replaces the stream. The stream has about `DELTAS_MAX` entries
at most, and no more text than a message may have. It expires some time after the response's
deadline or end.
"""

from __future__ import annotations

import dataclasses

import structlog

from chatserver.domain.ids import ChatId, Seq
from chatserver.features.companions.keys import CompanionKeys
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.scripts import load_script

log = structlog.get_logger()

DELTAS_MAX = 4_000  # close to this limit, text is buffered until a tool call or the end


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseSoFar:
    """The text of deltas 0 to `index` of a response. `end` is empty until the response ends."""

    response_id: str
    seq: Seq
    index: int
    text: str
    end: str


class ResponseStream:
    """Reads and writes the streams of responses in progress."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = CompanionKeys(hot.keys.partitions)

    async def begin(self, chat: ChatId, response_id: str, seq: Seq, ttl_s: float) -> None:
        """Start a stream with delta 0, replacing the chat's previous stream."""
        key = self._keys.deltas(chat)
        await self._hot.transaction(
            ("DEL", key),
            ("XADD", key, "1-0", "u", response_id, "s", seq),
            ("PEXPIRE", key, int(ttl_s * 1000)),
        )

    def append(self, chat: ChatId, index: int, text: str) -> None:
        """Append a delta. Deltas are stored in call order; a failure is only logged."""
        key = self._keys.deltas(chat)
        # NOMKSTREAM: do not recreate an expired stream, which would have no first entry.
        call = ("XADD", key, "NOMKSTREAM", f"{index + 1}-0", "t", text)
        self._hot.send(_log_failure, *call)

    async def end(self, chat: ChatId, index: int, reason: str, ttl_s: float) -> None:
        """Record how the response ended; expire the stream after `ttl_s`."""
        key = self._keys.deltas(chat)
        await self._hot.transaction(
            ("XADD", key, "NOMKSTREAM", f"{index + 1}-0", "e", reason),
            ("PEXPIRE", key, int(ttl_s * 1000)),
        )

    async def stop(self, chat: ChatId) -> Seq:
        """Request a stop of the response in progress.

        Returns the seq of the message being answered, or 0 if no response is in progress.
        """
        seq: int = await self._hot.run(
            load_script("stop_response"), {"asking": self._keys.response(chat)}
        )
        return Seq(seq)

    async def find(self, chat: ChatId) -> ResponseSoFar | None:
        """Return the current text of the response in progress, or the text of the last response.

        Guarantees:
            The text consists of deltas 0 to `index`, each exactly once.
            Cost: one Redis call.
        """
        reply = await self._hot.call("XRANGE", self._keys.deltas(chat), "-", "+")
        if not reply:
            return None
        first = dict(zip(reply[0][1][::2], reply[0][1][1::2], strict=True))
        if b"u" not in first:
            return None
        index, text, end = 0, [], ""
        for name, (field, value) in reply[1:]:
            position = int(name.partition(b"-")[0]) - 1
            if position != index + 1:
                break  # a delta was lost; return the text before the gap
            index = position
            if field == b"t":
                text.append(value.decode())
            else:
                end = value.decode()
        seq = Seq(int(first[b"s"]))
        return ResponseSoFar(first[b"u"].decode(), seq, index, "".join(text), end)


def _log_failure(reply: Reply) -> None:
    if isinstance(reply, Exception):
        log.warning("deltas.store_failed", error=str(reply))
