"""`chatserver gateway`: serve WebSocket clients."""

from __future__ import annotations

from typing import Annotated

import click

from chatserver.cli.process_setup import prepare, require_redis, run
from chatserver.command_options import with_options

PROCESSES_MAX = 256


@click.command()
@with_options
def gateway(
    *,
    processes: Annotated[
        int,
        click.IntRange(1, PROCESSES_MAX),
        "Number of gateway processes, which share the port. With more than one, "
        "SIGHUP replaces them one by one.",
    ] = 1,
    ready_fd: Annotated[int | None, {"hidden": True}, "Used by the supervisor."] = None,
) -> None:
    """Serve WebSocket clients, until SIGTERM. Needs Redis."""
    settings = prepare("gateway" if processes == 1 else "supervisor", requires_secret=True)
    require_redis(settings.redis)
    if processes > 1:
        from chatserver.gateway.process.supervisor import run_gateways

        run(run_gateways(settings, processes))
    else:
        from chatserver.gateway.process.main import run_gateway

        run(run_gateway(settings, ready_fd))
