"""`chatserver gateway`: serve WebSocket clients."""

from __future__ import annotations

import click

from chatserver.cli.process_setup import prepare, require_redis, run

PROCESSES_MAX = 256


@click.command()
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Number of gateway processes, which share the port. With more than one, "
    "SIGHUP replaces them one by one.",
)
@click.option("--ready-fd", type=int, hidden=True, help="Used by the supervisor.")
def gateway(processes: int, ready_fd: int | None) -> None:
    """Serve WebSocket clients, until SIGTERM. Needs Redis."""
    settings = prepare("gateway" if processes == 1 else "supervisor", requires_secret=True)
    require_redis(settings.redis)
    if processes > 1:
        from chatserver.gateway.process.supervisor import run_gateways

        run(run_gateways(settings, processes))
    else:
        from chatserver.gateway.process.main import run_gateway

        run(run_gateway(settings, ready_fd))
