"""`chatserver worker`: a process that runs background workers."""

from __future__ import annotations

import click

from chatserver.cli.running import prepare, require_redis, run

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
BY_NAME_ONLY = ("audit",)  # what it reads costs: nobody gets it unasked


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
    repair   finishes what a dead gateway left undelivered
    rpc      answers the gateways' calls to DynamoDB
    archive  moves old messages from DynamoDB to S3
    notify   tells absent members of new messages by push
    assistant answers what users ask AI companions
    media    makes thumbnails of images
    sweep    removes files that no message has, and bodies of messages that none points to
    holds    brings legal holds into force, and takes away what they kept when they end
    webhooks asks and tells the host application by HTTP
    exports  makes copies of what users have here, for them
    erasures takes away all that there is of users who asked for it
    counters counts likes, many at once
    timeline brings posts to the timelines of followers
    all      each of them
    audit    compares the tiers, round after round; not in `all`
    """
    settings = prepare("worker")
    require_redis(settings.redis)
    from workers.runner import run_workers

    chosen = [name for name in NAMES if name in names or "all" in names]
    chosen += [name for name in BY_NAME_ONLY if name in names]
    run(run_workers(settings, chosen))
