"""Runs the proxy as a process: `python -m chatserver.dev.aws_limits --target … --port …`."""

from __future__ import annotations

import asyncio
import signal

import click

from chatserver.dev.aws_limits.proxy import LimitsProxy
from chatserver.dev.aws_limits.rules import Limits
from chatserver.process_runtime import run

_DEFAULTS = Limits()


@click.command()
@click.option("--target", type=int, required=True, help="Port of the DynamoDB server.")
@click.option("--port", type=int, required=True)
@click.option("--write-units", default=_DEFAULTS.write_units, show_default=True)
@click.option("--read-units", default=_DEFAULTS.read_units, show_default=True)
@click.option("--burst-s", default=_DEFAULTS.burst_s, show_default=True)
@click.option("--transaction-ms", default=_DEFAULTS.transaction_ms, show_default=True)
@click.option("--index-lag-ms", type=(float, float), default=_DEFAULTS.index_lag_ms)
@click.option("--unprocessed-share", default=_DEFAULTS.unprocessed_share, show_default=True)
@click.option("--seed", default=_DEFAULTS.seed, show_default=True)
def main(
    target: int,
    port: int,
    write_units: float,
    read_units: float,
    burst_s: float,
    transaction_ms: float,
    index_lag_ms: tuple[float, float],
    unprocessed_share: float,
    seed: int,
) -> None:
    """Serve the DynamoDB API in front of a local server, with AWS limits."""
    limits = Limits(
        write_units=write_units,
        read_units=read_units,
        burst_s=burst_s,
        transaction_ms=transaction_ms,
        index_lag_ms=index_lag_ms,
        unprocessed_share=unprocessed_share,
        seed=seed,
    )
    run(_serve(LimitsProxy(target, limits, port)))


async def _serve(proxy: LimitsProxy) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with proxy:
        await stopped.wait()


if __name__ == "__main__":
    main()
