"""Stored responses for HTTP requests with an idempotency key: a retry gets the same response.

Data: ``{pN}:answer:<name>`` (string) contains the request digest for `CLAIM_S` (the claim), then
the response for `ANSWER_S`. The name is derived from the caller and the idempotency key.
``{pN}:answers:<user>`` (set, same TTL) contains the names of responses that may have the user's
data.
"""

from __future__ import annotations

import zlib

import msgspec

from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient

CLAIM_S = 60  # longer than any request; after a crash, the claim expires
ANSWER_S = 86_400


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """A request's digest (`asked`) and its response. `status` is 0 until there is a response."""

    asked: str
    status: int = 0
    content_type: str = ""
    body: bytes = b""

    @property
    def is_given(self) -> bool:
        """False while the first request is still being processed."""
        return self.status > 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Answer)
_JSON, _SHORT = "application/json", "j"
_PLAIN, _DEFLATED = b"\0", b"\1"
# Compression dictionary: text that responses have in common, so that even short ones shrink.
_WORDS = (
    b'"attachments":[],"durability":"hot","stored"}"large":0,"members":["kind":"group","direct",'
    b'"name":null,"chat":"g-"d-"user":"role":"member","owner","dup":false,"ts":17"seq":'
    b'{"id":0,"ref":"k-","mid":"01'
)


def _encode(answer: Answer) -> bytes:
    """Encode the response as msgpack, deflated if that is shorter."""
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
    """Repository of idempotent responses."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    def _key(self, name: str) -> str:
        return self._hot.keys.answer(UserId(name))

    async def claim(self, name: str, asked: str) -> Answer | None:
        """Claim a name and return None, or return the answer already stored under it.

        Guarantees:
            Of concurrent callers, exactly one gets None.

        Raises:
            Unavailable: Redis does not respond.
        """
        mine = Answer(asked)
        made = await self._hot.call("SET", self._key(name), _encode(mine), "NX", "EX", CLAIM_S)
        if made is not None:
            return None
        stored = await self._hot.call("GET", self._key(name))
        return mine if stored is None else _decode(stored)  # the claim or response has just expired

    async def put(self, name: str, answer: Answer, about: UserId | None = None) -> None:
        """Store the response under a claimed name. `about`: the user whose data it may contain."""
        if about is not None:
            # The name first: an erasure of the user would not find a response without it.
            listed = self._hot.keys.answers(about)
            await self._hot.transaction(("SADD", listed, name), ("EXPIRE", listed, ANSWER_S))
        await self._hot.write("SET", self._key(name), _encode(answer), "EX", ANSWER_S)

    async def remove_all(self, user: UserId) -> int:
        """Delete all responses that may contain the user's data; return the number deleted."""
        listed = self._hot.keys.answers(user)
        names: list[bytes] = await self._hot.call("SMEMBERS", listed)
        gone = [await self._hot.call("DEL", self._key(name.decode())) for name in names]
        await self._hot.call("DEL", listed)
        return sum(gone)

    async def release(self, name: str) -> None:
        """Delete the claim of a request that had no effect, so that a retry can run."""
        await self._hot.call("DEL", self._key(name))
