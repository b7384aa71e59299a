"""`chatserver vapid`: the key pair that push services know this installation by."""

from __future__ import annotations

import click


@click.command()
def vapid() -> None:
    """Make a VAPID key pair and print it as settings.

    Workers need both, the API the public one. Browsers are bound to the pair: with another one, all
    of them have to turn notifications on again.
    """
    from chatserver.push.vapid import make_vapid_pair

    private, public = make_vapid_pair()
    click.echo(f"CHAT_NOTIFY_VAPID_PUBLIC={public}")
    click.echo(f"CHAT_NOTIFY_VAPID_PRIVATE={private}")
    click.echo("# and who push services write to when something is wrong:", err=True)
    click.echo("# CHAT_NOTIFY_SUBJECT=mailto:you@example.com", err=True)
