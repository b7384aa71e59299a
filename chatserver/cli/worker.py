"""`chatserver worker`: run background workers."""

from __future__ import annotations

import click

from chatserver.cli.process_setup import prepare, require_redis, run
from workers.registry import list_workers

WORKERS = list_workers()


def _describe_workers() -> str:
    lines = [
        f"{name:<10}{each.help}" + ("" if each.is_in_all else "; not in `all`")
        for name, each in WORKERS.items()
    ]
    return "\n".join(["\b", *lines, "all       runs all of these"])


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
    require_redis(settings.redis)
    from workers.runner import run_workers

    chosen = [
        name
        for name, each in WORKERS.items()
        if name in names or ("all" in names and each.is_in_all)
    ]
    run(run_workers(settings, chosen))
