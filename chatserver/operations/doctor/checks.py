"""The checks of `chatserver doctor`, and how they run.

To add a check, write a function that takes the settings and returns findings, and list it here.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from chatserver.config import Settings
from chatserver.domain.clock import SystemClock
from chatserver.extras import describe_missing_module
from chatserver.operations.doctor import settings_checks
from chatserver.operations.doctor.model import Finding

CHECK_S_MAX: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A check. It does not run if one of the sections that it needs has invalid values."""

    store: str
    sections: tuple[str, ...]
    run: Callable[[Settings], Awaitable[list[Finding]]]


async def _check_redis(settings: Settings) -> list[Finding]:
    from chatserver.operations.doctor.redis_checks import check_redis

    extra_workers = ["search"] if settings.search.index else []
    return await check_redis(settings.redis, SystemClock(), extra_workers)


async def _check_dynamodb(settings: Settings) -> list[Finding]:
    from chatserver.operations.doctor.dynamodb_checks import check_dynamodb

    return await check_dynamodb(settings.warm)


async def _check_s3(settings: Settings) -> list[Finding]:
    from chatserver.operations.doctor.s3_checks import check_s3

    return await check_s3(settings.cold)


# In the order of the output. Redis is checked before the AWS library is loaded, which blocks the
# event loop: the Redis connection could miss its two-second deadline.
CHECKS: Final = (
    Check("redis", ("redis",), _check_redis),
    Check("settings", ("auth", "outbound"), settings_checks.check_auth),
    Check("settings", ("webhooks", "outbound"), settings_checks.check_webhooks),
    Check("settings", ("companions",), settings_checks.check_companions),
    Check("settings", ("telemetry",), settings_checks.check_telemetry),
    Check("settings", ("encryption", "search"), settings_checks.check_encryption),
    Check("settings", ("search",), settings_checks.check_search),
    Check("dynamodb", ("warm", "encryption"), _check_dynamodb),
    Check("s3", ("cold", "warm"), _check_s3),
)


async def run_checks(
    settings: Settings, broken: Collection[str] = (), more: Sequence[Check] = ()
) -> list[Finding]:
    """Run all checks, one after the other, except those that need a section in `broken`.

    `more`: additional checks.
    """
    findings = []
    for check in (*CHECKS, *more):
        if unusable := [name for name in check.sections if name in broken]:
            if check.store != "settings":
                message = f"not checked: the settings of {', '.join(unusable)} are invalid"
                findings.append(Finding(check.store, "note", message))
            continue
        findings += await _run_check(check, settings)
    return findings


async def _run_check(check: Check, settings: Settings) -> list[Finding]:
    try:
        async with asyncio.timeout(CHECK_S_MAX):
            return await check.run(settings)
    except TimeoutError:
        message = f"no response within {CHECK_S_MAX:g} s"
        return [Finding(check.store, "problem", message, "check the network")]
    except ModuleNotFoundError as exc:
        return [Finding(check.store, "problem", f"this check {describe_missing_module(exc)}")]
