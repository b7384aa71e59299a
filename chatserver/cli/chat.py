"""`chatserver chat`: terminal chat client."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Annotated, Any

import click

from chatserver.cli.process_setup import run
from chatserver.command_options import with_options
from chatserver.domain.ids import parse_id
from chatserver.errors import BadRequest, ChatError, Unauthenticated, Unavailable

API_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 20.0
RESPONSE_BYTES_MAX = 65_536
LOGIN_HELP = "Your token; prefer CHAT_TOKEN, because other users can read command lines."


@click.command()
@with_options
def chat(
    *,
    user: Annotated[str | None, "--as", "Demo user to log in as; not used with --token."] = None,
    peer: Annotated[str, "--with", "User to chat with."],
    token: Annotated[str | None, {"envvar": "CHAT_TOKEN"}, LOGIN_HELP] = None,
    url: Annotated[
        str | None, "Address of the gateway, ws:// or wss://; default: from the API."
    ] = None,
    api_url: Annotated[str, "--api", "Address of the API."] = API_URL,
    cache: Annotated[
        str | None, click.Path(dir_okay=False), "SQLite file for your messages."
    ] = None,
) -> None:
    """Chat in the terminal; /file PATH sends a file, /search WORDS finds messages.

    Without a token, you log in as a demo user of a running `chatserver dev`. With --cache and
    --url, a chat that you opened before is available offline. Messages that you write offline are
    sent later.
    """
    if user is None and token is None:
        raise click.UsageError("specify a user with --as NAME, or a token with --token")
    try:
        for name, option in ((peer, "--with"), (user or peer, "--as")):
            parse_id(name, option)
    except BadRequest as exc:
        raise click.UsageError(exc.message) from None
    if url is not None and not url.startswith(("ws://", "wss://")):
        raise click.UsageError("--url: must begin with ws:// or wss://")
    from chatserver.client.terminal import terminal

    async def get_token() -> str:
        if token is not None:
            return token
        return await asyncio.to_thread(log_in, api_url, user or "")

    gateway_url = url or str(call_api(api_url, "/v1/client-config")["gateway_url"])
    try:
        run(terminal.run_chat(gateway_url, get_token, peer, api_url, cache))
    except Unavailable:
        raise
    except ChatError as exc:
        raise click.ClickException(exc.message) from None


def log_in(api_url: str, user: str) -> str:
    """Return a token for a demo user.

    Raises:
        Unauthenticated: the demo user does not exist, or the API has no demo login.
        Unavailable: the API does not respond.
    """
    return str(call_api(api_url, "/v1/dev/login", {"user": user})["token"])


def call_api(api_url: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Call the API and return its JSON response.

    Raises:
        Unauthenticated: the API rejected the request.
        Unavailable: the API does not respond; the message explains how to start it.
    """
    url = api_url.rstrip("/") + path
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--api: must begin with http:// or https://")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers)  # noqa: S310  checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310  # the scheme is checked above
            response_body: dict[str, Any] = json.loads(response.read(RESPONSE_BYTES_MAX))
            return response_body
    except urllib.error.HTTPError as exc:
        raise Unauthenticated(_describe_error(exc, path)) from exc
    except (OSError, ValueError) as exc:
        raise Unavailable(
            f"no API at {api_url}: {exc}; start one with `chatserver dev`, or set --token and --url"
        ) from exc


def _describe_error(error: urllib.error.HTTPError, path: str) -> str:
    try:
        detail = str(json.loads(error.read(RESPONSE_BYTES_MAX))["detail"])
    except (OSError, ValueError, KeyError, TypeError):
        detail = f"{error.code} {error.reason}"
    if error.code == 404 and path.endswith("/login") and "user" not in detail:
        detail = "this API has no demo login; set --token"
    return detail
