"""`chatserver version`: print the version."""

from __future__ import annotations

import click

import chatserver


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"chatserver {chatserver.__version__}")
