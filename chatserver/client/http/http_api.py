"""HTTP API calls of the client SDK, made with the standard library in threads."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from chatserver.client.request_queue import parse_error
from chatserver.errors import BadRequest, ChatError, Unavailable

CALL_S = 15.0
ANSWER_BYTES_MAX = 1_048_576
PAGE_BYTES_MAX = 4 * ANSWER_BYTES_MAX

GetToken = Callable[[], Awaitable[str]]


class HttpApi:
    """Calls the HTTP API with the user's token; without `get_token`, only its public routes."""

    def __init__(self, api_url: str, get_token: GetToken | None = None) -> None:
        """Create an HTTP API client.

        Raises:
            BadRequest: `api_url` is not an HTTP address.
        """
        if not api_url.startswith(("http://", "https://")):
            raise BadRequest("api_url: must begin with http:// or https://")
        self._url = api_url.rstrip("/")
        self._get_token = get_token

    async def request(
        self, method: str, path: str, body: Any = None, own_headers: dict[str, str] | None = None
    ) -> Any:
        """Send a request and return the decoded response body, or None if it is empty.

        Raises:
            ChatError: the API returned an error (problem details).
            Unavailable: the API did not respond.
        """
        headers = dict(own_headers or {})
        if self._get_token is not None:
            headers["Authorization"] = f"Bearer {await self._get_token()}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            self._url + path, data, headers, method=method
        )
        response = await asyncio.to_thread(open_url, request, CALL_S, PAGE_BYTES_MAX)
        return json.loads(response) if response else None

    async def get(self, path: str, **query: str | int | None) -> Any:
        """Return the response to a GET request, with those query parameters that are not None."""
        text = urllib.parse.urlencode({name: v for name, v in query.items() if v is not None})
        return await self.request("GET", f"{path}?{text}" if text else path)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, which would forward the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def open_url(request: urllib.request.Request, timeout_s: float, bytes_max: int | None) -> bytes:
    """Send a request and return the response body, at most `bytes_max` bytes of it.

    Raises:
        ChatError: the API returned an error (problem details).
        Unavailable: the server did not respond.
    """
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            content: bytes = response.read() if bytes_max is None else response.read(bytes_max)
            return content
    except urllib.error.HTTPError as exc:
        _raise_api_error(exc)
    except OSError as exc:
        raise Unavailable(f"{request.host}: {exc}") from exc


def _raise_api_error(error: urllib.error.HTTPError) -> NoReturn:
    try:
        problem = json.loads(error.read(ANSWER_BYTES_MAX))
        api_error: ChatError = parse_error({**problem, "message": problem["detail"]})
    except (OSError, ValueError, KeyError, TypeError):
        kind = Unavailable if error.code >= 500 else ChatError
        raise kind(f"{error.code} {error.reason}") from None
    raise api_error from None
