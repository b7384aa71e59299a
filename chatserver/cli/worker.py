"""`chatserver worker`: run background workers."""

from __future__ import annotations

import click

from chatserver.cli.process_setup import prepare, require_redis, run

NAMES = (
    "persist",
    "repair",
    "rpc",
    "archive",
    "notify",
    "assistant",
    "media",
    "sweep",
    "holds",
    "webhooks",
    "exports",
    "erasures",
    "counters",
    "timeline",
)
BY_NAME_ONLY = ("audit",)  # its reads cost money, so `all` does not include it


@click.command()
@click.argument(
    "names",
    metavar="NAMES...",
    nargs=-1,
    required=True,
    type=click.Choice([*NAMES, *BY_NAME_ONLY, "all"]),
)
def worker(names: tuple[str, ...]) -> None:
    """Run the workers NAMES in one process, until SIGTERM. Needs Redis, DynamoDB and S3.

    \b
    persist  moves messages from Redis to DynamoDB
    repair   completes deliveries that a dead gateway left unfinished
    rpc      serves the gateways' calls to DynamoDB
    archive  moves old messages from DynamoDB to S3
    notify   sends push notifications for new messages to offline members
    assistant answers users' messages to AI companions
    media    makes thumbnails of images
    sweep    deletes unreferenced files and message bodies
    holds    applies legal holds, and deletes their copies when they end
    webhooks calls the host application over HTTP
    exports  creates exports of users' data
    erasures deletes all data of users on their request
    counters counts likes in batches
    timeline adds posts to the timelines of followers
    all      runs all of these
    audit    compares the tiers continuously; not in `all`
    """
    settings = prepare("worker")
    require_redis(settings.redis)
    from workers.runner import run_workers

    chosen = [name for name in NAMES if name in names or "all" in names]
    chosen += [name for name in BY_NAME_ONLY if name in names]
    run(run_workers(settings, chosen))
