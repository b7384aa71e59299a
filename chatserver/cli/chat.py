"""`chatserver chat`: terminal chat client."""

from __future__ import annotations

from typing import Annotated, Any

import click

from chatserver.cli.process_setup import run
from chatserver.command_options import with_options
from chatserver.domain.ids import parse_id
from chatserver.errors import BadRequest, ChatError, NotFound, Unauthenticated, Unavailable

API_URL = "http://127.0.0.1:8080"
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
        return token or await log_in(api_url, user or "")

    async def open_chat() -> None:
        try:
            gateway_url = (
                url or (await call_api(api_url, "GET", "/v1/client-config"))["gateway_url"]
            )
        except BadRequest as exc:
            raise click.UsageError(exc.message.replace("api_url:", "--api:")) from None
        await terminal.run_chat(gateway_url, get_token, peer, api_url, cache)

    try:
        run(open_chat())
    except Unavailable:
        raise
    except ChatError as exc:
        raise click.ClickException(exc.message) from None


async def log_in(api_url: str, user: str) -> str:
    """Return a token for a demo user.

    Raises:
        ChatError: the demo user does not exist, or the API has no demo login.
        Unavailable: the API does not respond.
    """
    try:
        return str((await call_api(api_url, "POST", "/v1/dev/login", {"user": user}))["token"])
    except NotFound as exc:
        if "user" in exc.message:
            raise
        raise Unauthenticated("this API has no demo login; set --token") from exc


async def call_api(
    api_url: str, method: str, path: str, body: dict[str, str] | None = None
) -> dict[str, Any]:
    """Call the API and return its JSON response.

    Raises:
        BadRequest: `api_url` is not an HTTP address.
        ChatError: the API rejected the request.
        Unavailable: the API does not respond; the message explains how to start it.
    """
    from chatserver.client.http.http_api import HttpApi

    try:
        response: dict[str, Any] = await HttpApi(api_url).request(method, path, body)
    except Unavailable as exc:
        raise Unavailable(
            f"no API at {api_url}: {exc.message}; start one with `chatserver dev`, or set --token "
            "and --url"
        ) from exc
    return response
