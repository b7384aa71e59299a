"""`chatserver audit social`: looks whether the social graph's counts and edges are true.

Exit codes: 0 nothing is wrong, or was put right; 1 something is.
"""

from __future__ import annotations

import sys

import click

from chatserver.cli.running import prepare, require_redis, run
from chatserver.config import Settings
from chatserver.domain.quantities import counted

SETTLE_S = 10.0  # longer than the calls between a like's edge and the queue may take


@click.command("social")
@click.option("--mend", "is_mending", is_flag=True, help="Put right what is wrong.")
def audit_social(is_mending: bool) -> None:
    """Recount the social graph: edges have two sides, counts are the numbers of rows.

    May run at any time: what seems wrong is looked at again until it has stood still. An edge that
    went leaves counts to be put right by the next run.
    """
    settings = prepare("audit")
    require_redis(settings.redis)
    if run(_audit(settings, is_mending=is_mending)):
        sys.exit(1)


async def _audit(settings: Settings, *, is_mending: bool) -> bool:
    """Print what is wrong; True if anything of it still is."""
    from chatserver.hot.client import open_hot
    from chatserver.hot.likes import LikeQueue
    from chatserver.warm.client import open_dynamodb
    from chatserver.warm.social_audit import SocialAudit

    has_found = is_wrong = False
    async with open_hot(settings.redis) as hot, open_dynamodb(settings.warm) as dynamodb:
        queue = LikeQueue(hot, settings.counters.queue_max)
        audit = SocialAudit(
            dynamodb.for_feature("audit"),
            settings.warm,
            queue.is_waiting,
            SETTLE_S,
            is_mending=is_mending,
        )
        async for found in audit.iter_findings():
            has_found = True
            is_wrong |= not found.is_mended
            mended = "mended" if found.is_mended else "wrong"
            line = (found.what, found.key, f"stored {found.stored}", f"counted {found.counted}")
            click.echo("\t".join((mended, *line)))
        rows, unsteady = audit.progress
    says = "" if has_found else ": nothing is wrong"
    click.echo(f"{counted(rows, 'row')}, {unsteady} that keep changing{says}", err=True)
    return is_wrong
