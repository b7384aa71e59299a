"""Runs the proxy as a process: `python -m chatserver.dev.aws_limits --target … --port …`."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated, Any

import click

from chatserver.command_options import with_options, with_options_of
from chatserver.dev.aws_limits.proxy import LimitsProxy
from chatserver.dev.aws_limits.rules import AwsLimits
from chatserver.process_runtime import run


@click.command()
@with_options
@with_options_of(AwsLimits)
def main(
    *,
    target: Annotated[int, "Port of the DynamoDB server."],
    port: Annotated[int, "Port of the proxy."],
    **limits: Any,
) -> None:
    """Serve the DynamoDB API in front of a local server, with AWS limits."""
    run(_serve(LimitsProxy(target, AwsLimits(**limits), port)))


async def _serve(proxy: LimitsProxy) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with proxy:
        await stopped.wait()


if __name__ == "__main__":
    main()
