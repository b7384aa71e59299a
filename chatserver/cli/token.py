"""`chatserver token`: create a user token for testing and operations."""

from __future__ import annotations

import click

from chatserver.cli.process_setup import prepare
from chatserver.config import check_secret
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest


@click.command()
@click.option("--user", required=True, help="User id in the token.")
@click.option(
    "--ttl", "ttl_s", type=int, default=3600, show_default=True, help="Lifetime in seconds."
)
def token(user: str, ttl_s: int) -> None:
    """Create a token for a user, signed with auth.secret (CHAT_AUTH_SECRET)."""
    settings = prepare("token")
    check_secret(settings)
    from chatserver.auth.tokens import Tokens
    from chatserver.domain.clock import SystemClock

    try:
        click.echo(Tokens(settings.auth, SystemClock()).issue(UserId(user), ttl_s))
    except BadRequest as exc:
        raise click.UsageError(exc.message.replace("ttl_s:", "--ttl:")) from None
