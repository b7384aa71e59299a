"""`chatserver api`: serve the web client and the HTTP API."""

from __future__ import annotations

import click

from chatserver.cli.process_setup import prepare, run


@click.command()
def api() -> None:
    """Serve the web client and the HTTP API, until SIGTERM."""
    settings = prepare("api", requires_secret=True)
    from chatserver.api.app import run_api

    run(run_api(settings))
