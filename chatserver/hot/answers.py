"""Answers to HTTP requests that carry an idempotency key, so that a repeat gets the same one.

Data: ``{pN}:answer:<name>`` (string), named for who asks and the key: first a claim, which says
what is being asked and lives for `CLAIM_S`; then the answer, for `ANSWER_S`.
``{pN}:answers:<user>`` (set) has the names of answers that may tell of a user, for as long.
"""

from __future__ import annotations

import zlib

import msgspec

from chatserver.domain.ids import UserId
from chatserver.hot.client import HotClient

CLAIM_S = 60  # longer than any request takes; a process that died in one claims no longer
ANSWER_S = 86_400


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """What was asked, as a digest, and what was answered; without a status: nothing yet."""

    asked: str
    status: int = 0
    content_type: str = ""
    body: bytes = b""

    @property
    def is_given(self) -> bool:
        """False while the first request is still being answered."""
        return self.status > 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Answer)
_JSON, _SHORT = "application/json", "j"
_PLAIN, _DEFLATED = b"\0", b"\1"
# What answers have in common, so that even a short one gets shorter.
_WORDS = (
    b'"attachments":[],"durability":"hot","stored"}"large":0,"members":["kind":"group","direct",'
    b'"name":null,"chat":"g-"d-"user":"role":"member","owner","dup":false,"ts":17"seq":'
    b'{"id":0,"ref":"k-","mid":"01'
)


def _encode(answer: Answer) -> bytes:
    """Return an answer in as few bytes as zlib makes of it."""
    content_type = _SHORT if answer.content_type == _JSON else answer.content_type
    plain = _encoder.encode(msgspec.structs.replace(answer, content_type=content_type))
    packer = zlib.compressobj(wbits=-15, zdict=_WORDS)
    packed = packer.compress(plain) + packer.flush()
    return _DEFLATED + packed if len(packed) < len(plain) else _PLAIN + plain


def _decode(stored: bytes) -> Answer:
    plain = stored[1:]
    if stored[:1] == _DEFLATED:
        plain = zlib.decompressobj(wbits=-15, zdict=_WORDS).decompress(plain)
    answer = _decoder.decode(plain)
    if answer.content_type == _SHORT:
        answer = msgspec.structs.replace(answer, content_type=_JSON)
    return answer


class Answers:
    """Claims names, and keeps what was answered."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    def _key(self, name: str) -> str:
        return self._hot.keys.answer(UserId(name))

    async def claim(self, name: str, asked: str) -> Answer | None:
        """Return what is there under a name; None: nothing was, and it is claimed now.

        Guarantees:
            Of two callers at once, one gets None.

        Raises:
            Unavailable: Redis does not answer.
        """
        mine = Answer(asked)
        made = await self._hot.call("SET", self._key(name), _encode(mine), "NX", "EX", CLAIM_S)
        if made is not None:
            return None
        stored = await self._hot.call("GET", self._key(name))
        return mine if stored is None else _decode(stored)  # it has just ended

    async def put(self, name: str, answer: Answer, about: UserId | None = None) -> None:
        """Keep an answer under a claimed name. `about`: the user of whom it may tell."""
        if about is not None:
            # First: an answer that is not listed would outlive its user.
            listed = self._hot.keys.answers(about)
            await self._hot.transaction(("SADD", listed, name), ("EXPIRE", listed, ANSWER_S))
        await self._hot.write("SET", self._key(name), _encode(answer), "EX", ANSWER_S)

    async def remove_all(self, user: UserId) -> int:
        """Forget the answers that may tell of a user; return how many there were."""
        listed = self._hot.keys.answers(user)
        names: list[bytes] = await self._hot.call("SMEMBERS", listed)
        gone = [await self._hot.call("DEL", self._key(name.decode())) for name in names]
        await self._hot.call("DEL", listed)
        return sum(gone)

    async def release(self, name: str) -> None:
        """Give a claim back: nothing was done, and the next request may do it."""
        await self._hot.call("DEL", self._key(name))
