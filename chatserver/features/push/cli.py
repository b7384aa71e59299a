"""`chatserver vapid`: generate the VAPID key pair that identifies this installation."""

from __future__ import annotations

import click


@click.command()
def vapid() -> None:
    """Generate a VAPID key pair and print it as settings.

    Workers need both keys; the API needs only the public key. If you change the keys, users must
    enable notifications again.
    """
    from chatserver.features.push.providers.vapid import make_vapid_pair

    private, public = make_vapid_pair()
    click.echo(f"CHAT_NOTIFY_VAPID_PUBLIC={public}")
    click.echo(f"CHAT_NOTIFY_VAPID_PRIVATE={private}")
    click.echo("# also set a contact address for push services:", err=True)
    click.echo("# CHAT_NOTIFY_SUBJECT=mailto:you@example.com", err=True)
