"""Fetches small documents. A partial response is an error."""

from __future__ import annotations

from chatserver.errors import SERVER_DOWN, BadRequest, Unavailable
from chatserver.outbound.http_client import HttpClient

TIMEOUT_S = 2.0
BYTES_MAX = 65_536


async def fetch_document(outbound: HttpClient, url: str) -> bytes:
    """Return the document at `url`, at most 64 KB.

    Raises:
        Unavailable: the document cannot be fetched now, or the address is not allowed.
    """
    try:
        response = await outbound.get(url, timeout_s=TIMEOUT_S, response_bytes_max=BYTES_MAX)
    except BadRequest as exc:
        raise Unavailable(exc.message, public=SERVER_DOWN) from exc
    if not response.is_ok:
        raise Unavailable(f"response status {response.status}")
    return response.body
