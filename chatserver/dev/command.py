"""`chatserver dev`: run the complete system on this machine with one command."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from pathlib import Path
from typing import Annotated

import click

from chatserver import __version__, compiled, process_runtime
from chatserver.command_options import with_options
from chatserver.dev.console import Screen
from chatserver.dev.data_folder import DataFolder
from chatserver.dev.ports import (
    DYNAMODB_PORT,
    GATEWAY_PORT,
    PAGE_PORT,
    REDIS_PORT,
    S3_PORT,
    Ports,
    find_free_port,
)
from chatserver.dev.process_plan import (
    ProcessPlan,
    fallback_notes,
    require_aws_limits,
    require_servers,
)
from chatserver.dev.server_installer import install_servers
from chatserver.dev.supervisor import Supervisor
from chatserver.extras import require_extras

EXTRAS = ("api", "aws", "media", "push")  # that the workers and the API import
_PORT = click.IntRange(1, 65_535)
_SCRIPT = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@with_options
def dev(
    *,
    port: Annotated[int, _PORT, "Port of the web client."] = PAGE_PORT,
    gateway_port: Annotated[int, _PORT, "Port of the gateway."] = GATEWAY_PORT,
    redis_port: Annotated[int, _PORT, "Port of Redis."] = REDIS_PORT,
    dynamodb_port: Annotated[int, _PORT, "Port of DynamoDB."] = DYNAMODB_PORT,
    s3_port: Annotated[int, _PORT, "Port of S3."] = S3_PORT,
    data: Annotated[
        Path, click.Path(file_okay=False, path_type=Path), "Folder for all data."
    ] = Path(".dev"),
    gateways: Annotated[
        int, click.IntRange(1, 16), "Number of gateway processes, which share one port."
    ] = 1,
    aws_limits: Annotated[
        bool,
        "Refuse and delay DynamoDB requests as AWS does: transaction conflicts, hot partitions, "
        "partial batches, index lag.",
    ] = False,
    install: Annotated[
        bool, "First download the servers that are missing, with pip, into ~/.cache/chatserver."
    ] = False,
    fresh: Annotated[bool, "First delete all data."] = False,
    verbose: Annotated[bool, "Also show the log lines of Redis, DynamoDB and S3."] = False,
    stop_with_parent: Annotated[bool, {"hidden": True}, "Used by `make run`."] = False,
    compile_with: Annotated[
        Path | None, _SCRIPT, {"hidden": True}, "Script that compiles the send path."
    ] = None,
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
    screen.log(f"chatserver {__version__}, {compiled.describe()}")
    for note in fallback_notes():
        screen.log(note)
    try:
        behind = find_free_port() if aws_limits else None
        plan = ProcessPlan(
            folder.path,
            ports,
            secret=folder.read_secret(),
            gateways=gateways,
            local_dynamodb_port=behind,
            build_script=compile_with,
        )
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
