"""What a companion says while it says it: kept for a short time, so that devices can join.

Data: ``{pN}:deltas:<chat>`` (stream) has the answer that is being made, or the last one. Entry
``<index + 1>-0``: ``t`` text; the first one, index 0, has no text but ``u`` the turn and ``s`` the
seq of the message that is answered; the last one has ``e``, how it ended. An answer that is begun
again takes the place of what was there. Bound: `DELTAS_MAX` entries, together as long as a message
may be. Expires some time after the answer's deadline, or its end.
"""

from __future__ import annotations

import dataclasses

import structlog

from chatserver.domain.ids import ChatId, Seq
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import load_script
from chatserver.hot.wire import Reply

log = structlog.get_logger()

DELTAS_MAX = 4_000  # what comes beyond is joined into the last one


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """What was said so far: deltas 0 to `index`. `end` is empty while there is more to come."""

    turn: str
    seq: Seq
    index: int
    text: str
    end: str


class Deltas:
    """The answers that are being made."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def begin(self, chat: ChatId, turn: str, seq: Seq, ttl_s: float) -> None:
        """Begin an answer, with delta 0; what was there of another one is gone."""
        key = self._hot.keys.deltas(chat)
        await self._hot.transaction(
            ("DEL", key),
            ("XADD", key, "1-0", "u", turn, "s", seq),
            ("PEXPIRE", key, int(ttl_s * 1000)),
        )

    def append(self, chat: ChatId, index: int, text: str) -> None:
        """Keep a delta; best effort, in the order of the calls."""
        key = self._hot.keys.deltas(chat)
        # NOMKSTREAM: what has expired does not come back without its beginning.
        call = ("XADD", key, "NOMKSTREAM", f"{index + 1}-0", "t", text)
        self._hot.send(_complain, *call)

    async def end(self, chat: ChatId, index: int, how: str, ttl_s: float) -> None:
        """Say how the answer ended, and forget it after `ttl_s`."""
        key = self._hot.keys.deltas(chat)
        await self._hot.transaction(
            ("XADD", key, "NOMKSTREAM", f"{index + 1}-0", "e", how),
            ("PEXPIRE", key, int(ttl_s * 1000)),
        )

    async def stop(self, chat: ChatId) -> Seq:
        """Ask that the answer being made ends; return to which message it is, 0: none is."""
        seq: int = await self._hot.run(
            load_script("stop_turn"), {"asking": self._hot.keys.asking(chat)}
        )
        return Seq(seq)

    async def find(self, chat: ChatId) -> Heard | None:
        """Return what was said so far of the answer that is being made, or was just made.

        Guarantees:
            Exact: the text is that of deltas 0 to `index`, each once.
            Cost: one Redis call.
        """
        reply = await self._hot.call("XRANGE", self._hot.keys.deltas(chat), "-", "+")
        if not reply:
            return None
        first = dict(zip(reply[0][1][::2], reply[0][1][1::2], strict=True))
        if b"u" not in first:
            return None
        index, text, end = 0, [], ""
        for name, (field, value) in reply[1:]:
            place = int(name.partition(b"-")[0]) - 1
            if place != index + 1:
                break  # one was lost: up to here it is exact
            index = place
            if field == b"t":
                text.append(value.decode())
            else:
                end = value.decode()
        seq = Seq(int(first[b"s"]))
        return Heard(first[b"u"].decode(), seq, index, "".join(text), end)


def _complain(reply: Reply) -> None:
    if isinstance(reply, Exception):
        log.warning("deltas.not_kept", error=str(reply))
