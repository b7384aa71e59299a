"""The checks of `chatserver doctor`, and how they run.

To add a check, write a function that takes the settings and returns findings, and list it here, or
in ``CHECKS`` of the module `doctor` of a feature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from chatserver.config import Settings
from chatserver.domain.clock import SystemClock
from chatserver.extras import describe_missing_module
from chatserver.feature_modules import iter_feature_modules
from chatserver.operations.doctor import settings_checks
from chatserver.operations.doctor.model import DoctorCheck, DoctorFinding

CHECK_S_MAX: Final = 60.0


async def _check_redis(settings: Settings) -> list[DoctorFinding]:
    from chatserver.operations.doctor.redis_checks import check_redis

    needed = [name for section in settings.features for name in section.list_needed_workers()]
    return await check_redis(settings.redis, SystemClock(), needed)


async def _check_dynamodb(settings: Settings) -> list[DoctorFinding]:
    from chatserver.operations.doctor.dynamodb_checks import check_dynamodb

    return await check_dynamodb(settings.warm)


async def _check_s3(settings: Settings) -> list[DoctorFinding]:
    from chatserver.operations.doctor.s3_checks import check_s3

    return await check_s3(settings.cold)


def list_checks() -> list[DoctorCheck]:
    """Return the checks in the order of the output.

    Redis is checked before the AWS library is loaded, which blocks the event loop: the Redis
    connection could miss its two-second deadline.
    """
    return [
        DoctorCheck("redis", ("redis",), _check_redis),
        DoctorCheck("settings", ("auth", "outbound"), settings_checks.check_auth),
        DoctorCheck("settings", ("telemetry",), settings_checks.check_telemetry),
        DoctorCheck("settings", ("encryption",), settings_checks.check_encryption),
        *(check for module in iter_feature_modules("doctor") for check in module.CHECKS),
        DoctorCheck("dynamodb", ("warm", "encryption"), _check_dynamodb),
        DoctorCheck("s3", ("cold", "warm"), _check_s3),
    ]


async def run_checks(
    settings: Settings, broken: Collection[str] = (), more: Sequence[DoctorCheck] = ()
) -> list[DoctorFinding]:
    """Run all checks, one after the other, except those that need a section in `broken`.

    `more`: additional checks.
    """
    findings = []
    for check in (*list_checks(), *more):
        if unusable := [name for name in check.sections if name in broken]:
            if check.store != "settings":
                message = f"not checked: the settings of {', '.join(unusable)} are invalid"
                findings.append(DoctorFinding(check.store, "note", message))
            continue
        findings += await _run_check(check, settings)
    return findings


async def _run_check(check: DoctorCheck, settings: Settings) -> list[DoctorFinding]:
    try:
        async with asyncio.timeout(CHECK_S_MAX):
            return await check.run(settings)
    except TimeoutError:
        message = f"no response within {CHECK_S_MAX:g} s"
        return [DoctorFinding(check.store, "problem", message, "check the network")]
    except ModuleNotFoundError as exc:
        return [DoctorFinding(check.store, "problem", f"this check {describe_missing_module(exc)}")]
