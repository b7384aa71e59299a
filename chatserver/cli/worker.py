"""`chatserver worker`: run background workers."""

from __future__ import annotations

from collections.abc import Collection

import click

from chatserver.cli.process_setup import prepare, require_redis, run
from chatserver.config import Settings
from chatserver.features.registry import Worker
from workers.registry import list_workers

WORKERS = list_workers()


def _describe_workers() -> str:
    lines = [
        f"{name:<10}{worker_type.help}{_describe_all(worker_type)}"
        for name, worker_type in WORKERS.items()
    ]
    return "\n".join(["\b", *lines, "all       runs all of these, except as noted"])


def _describe_all(worker: Worker) -> str:
    if worker.is_in_all:
        return ""
    return f"; in `all` if {worker.all_if} is set" if worker.all_if else "; not in `all`"


@click.command(
    help="Run the workers NAMES in one process, until SIGTERM. Needs Redis, DynamoDB and S3.\n\n"
    + _describe_workers()
)
@click.argument(
    "names", metavar="NAMES...", nargs=-1, required=True, type=click.Choice([*WORKERS, "all"])
)
def worker(names: tuple[str, ...]) -> None:
    """Run the named workers."""
    settings = prepare("worker")
    from workers.runner import run_workers

    require_redis(settings.redis)

    run(run_workers(settings, choose_workers(names, settings)))


def choose_workers(names: Collection[str], settings: Settings) -> list[str]:
    """Return the workers that the argument NAMES selects."""
    return [
        name
        for name, worker_type in WORKERS.items()
        if name in names or ("all" in names and worker_type.is_in_all_of(settings))
    ]
