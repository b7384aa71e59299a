"""`chatserver password`: set the password of a user, also of an admin of the installation."""

from __future__ import annotations

import contextlib
from typing import Annotated

import click

from chatserver.cli.process_setup import prepare, run
from chatserver.command_options import with_options
from chatserver.config import Settings
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId


@click.command()
@click.argument("user")
@with_options
def password(
    user: str,
    *,
    password: Annotated[
        str,
        {"prompt": True, "hide_input": True, "confirmation_prompt": True, "required": False},
        "The new password. If omitted, the command asks for it.",
    ],
) -> None:
    """Set USER's password, and log out all of the user's devices.

    Creates the user if there is none. API keys cannot set the password of an admin
    (CHAT_AUTH_ADMINS); this command can.
    """
    from chatserver.errors import ClientError

    try:
        run(_set_password(prepare("password"), UserId(user), password))
    except ClientError as exc:
        raise click.ClickException(exc.message) from exc
    click.echo(f"password of {user} is set")


async def _set_password(settings: Settings, user: UserId, password: str) -> None:
    from chatserver.container.storage import open_storage_container
    from chatserver.errors import Conflict
    from chatserver.features.accounts.container import AccountContainer

    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        accounts = container.get(AccountContainer)
        accounts.password_logins.parse_password(user, password)  # before an account is created
        with contextlib.suppress(Conflict):  # the user exists
            await accounts.profiles.create(user, None)
        await accounts.password_logins.set_password(user, password)
