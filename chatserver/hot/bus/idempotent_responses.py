"""Stored responses for HTTP requests with an idempotency key: a retry gets the same response.

Data: ``{pN}:answer:<name>`` (string) first contains a claim (the request digest) for `CLAIM_TTL_S`,
then the response for `RESPONSE_TTL_S`. The name is derived from the caller and the idempotency key.
``{pN}:answers:<user>`` (set, same TTL) contains the names of responses that may contain data of the
user, so that these responses can be deleted when the user is erased.
"""

from __future__ import annotations

import zlib

import msgspec

from chatserver.domain.ids import UserId
from chatserver.hot.redis.client import HotClient

CLAIM_TTL_S = 60  # the claim of a crashed request expires after this; no request takes longer
RESPONSE_TTL_S = 86_400


class StoredResponse(msgspec.Struct, array_like=True, frozen=True):
    """A request's digest (`asked`) and its response. Until there is one, `status` is 0."""

    asked: str
    status: int = 0
    content_type: str = ""
    body: bytes = b""

    @property
    def is_given(self) -> bool:
        """False while the first request is still being processed."""
        return self.status > 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredResponse)
_JSON, _SHORT = "application/json", "j"
_PLAIN, _DEFLATED = b"\0", b"\1"
# Compression dictionary: text that responses have in common, so that even short ones shrink.
_WORDS = (
    b'"attachments":[],"durability":"hot","stored"}"large":0,"members":["kind":"group","direct",'
    b'"name":null,"chat":"g-"d-"user":"role":"member","owner","dup":false,"ts":17"seq":'
    b'{"id":0,"ref":"k-","mid":"01'
)


def _encode(response: StoredResponse) -> bytes:
    """Encode the response as msgpack, deflated if that is shorter."""
    content_type = _SHORT if response.content_type == _JSON else response.content_type
    plain = _encoder.encode(msgspec.structs.replace(response, content_type=content_type))
    packer = zlib.compressobj(wbits=-15, zdict=_WORDS)
    packed = packer.compress(plain) + packer.flush()
    return _DEFLATED + packed if len(packed) < len(plain) else _PLAIN + plain


def _decode(stored: bytes) -> StoredResponse:
    plain = stored[1:]
    if stored[:1] == _DEFLATED:
        plain = zlib.decompressobj(wbits=-15, zdict=_WORDS).decompress(plain)
    response = _decoder.decode(plain)
    if response.content_type == _SHORT:
        response = msgspec.structs.replace(response, content_type=_JSON)
    return response


class IdempotentResponses:
    """Repository of idempotent responses."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    def _key(self, name: str) -> str:
        return self._hot.keys.answer(UserId(name))

    async def claim(self, name: str, request_digest: str) -> StoredResponse | None:
        """Claim `name` and return None; if it is taken, return the stored claim or response.

        Guarantees:
            Of concurrent callers, exactly one gets None.

        Raises:
            Unavailable: Redis does not respond.
        """
        mine = StoredResponse(request_digest)
        is_claimed = await self._hot.call(
            "SET", self._key(name), _encode(mine), "NX", "EX", CLAIM_TTL_S
        )
        if is_claimed is not None:
            return None
        stored = await self._hot.call("GET", self._key(name))
        return mine if stored is None else _decode(stored)  # the claim or response has just expired

    async def put(self, name: str, response: StoredResponse, user: UserId | None = None) -> None:
        """Store the response, which may contain data of `user`, under a claimed name."""
        if user is not None:
            # Store the name first: without it, an erasure of the user would not find the response.
            listed = self._hot.keys.answers(user)
            await self._hot.transaction(("SADD", listed, name), ("EXPIRE", listed, RESPONSE_TTL_S))
        await self._hot.write("SET", self._key(name), _encode(response), "EX", RESPONSE_TTL_S)

    async def remove_all(self, user: UserId) -> int:
        """Delete all responses that may contain the user's data; return the number deleted."""
        listed = self._hot.keys.answers(user)
        names: list[bytes] = await self._hot.call("SMEMBERS", listed)
        deletions = [await self._hot.call("DEL", self._key(name.decode())) for name in names]
        await self._hot.call("DEL", listed)
        return sum(deletions)

    async def release(self, name: str) -> None:
        """Delete the claim of a request that had no effect, so that a retry can run."""
        await self._hot.call("DEL", self._key(name))
