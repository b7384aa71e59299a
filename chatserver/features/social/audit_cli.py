"""`chatserver audit social`: check follows, favorites and counts.

Exit codes: 0 no findings, or all repaired; 1 unrepaired findings.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import click

from chatserver.cli.process_setup import prepare, require_redis
from chatserver.command_options import with_options
from chatserver.domain.quantities import format_count

# A mismatch is read again after this time; pending count changes have then been queued.
SETTLE_S = 10.0


@click.command("social")
@with_options
async def audit_social(
    *, is_repairing: Annotated[bool, "--repair", "Repair inconsistencies."] = False
) -> None:
    """Check that each follow and favorite is stored on both sides, and check the counts.

    Safe to run at any time: a mismatch is read again until two reads agree. If a repair removes a
    follow, the next run repairs the counts.
    """
    from chatserver.features.social.hot import CountQueue
    from chatserver.features.social.warm.audit import SocialAudit
    from chatserver.hot.redis.factory import open_hot
    from chatserver.warm.dynamo.connections import open_dynamodb

    settings = prepare("audit")
    require_redis(settings.redis)
    has_found = is_wrong = False
    async with open_hot(settings.redis) as hot, open_dynamodb(settings.warm) as dynamodb:
        queue = CountQueue(hot)
        audit = SocialAudit(
            client=dynamodb.for_feature("audit"),
            has_uncounted=queue.has_uncounted,
            settle_s=SETTLE_S,
            is_repairing=is_repairing,
        )
        async for finding in audit.iter_findings():
            has_found = True
            is_wrong |= not finding.is_repaired
            status = "repaired" if finding.is_repaired else "wrong"
            line = (
                finding.what,
                finding.key,
                f"stored {finding.stored}",
                f"counted {finding.counted}",
            )
            click.echo("\t".join((status, *line)))
        rows, unstable = audit.progress
    suffix = "" if has_found else ": nothing is wrong"
    click.echo(f"{format_count(rows, 'row')}, {unstable} that keep changing{suffix}", err=True)
    if is_wrong:  # and not repaired
        sys.exit(1)


COMMAND: Final = audit_social
