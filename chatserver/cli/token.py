"""`chatserver token`: create a user token for testing and operations."""

from __future__ import annotations

from typing import Annotated

import click

from chatserver.cli.process_setup import prepare
from chatserver.command_options import with_options
from chatserver.config import check_secret
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest


@click.command()
@with_options
def token(
    *,
    user: Annotated[str, "User id in the token."],
    ttl_s: Annotated[int, "--ttl", "Lifetime in seconds."] = 3600,
) -> None:
    """Create a token for a user, signed with auth.secret (CHAT_AUTH_SECRET)."""
    settings = prepare("token")
    check_secret(settings)
    from chatserver.auth.access_tokens import Tokens
    from chatserver.domain.clock import SystemClock

    try:
        click.echo(Tokens(settings.auth, SystemClock()).issue(UserId(user), ttl_s))
    except BadRequest as exc:
        raise click.UsageError(exc.message.replace("ttl_s:", "--ttl:")) from None
