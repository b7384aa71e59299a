"""Check of the webhook settings for `chatserver doctor`."""

from __future__ import annotations

from typing import Final

from chatserver.config import Settings
from chatserver.errors import ChatError
from chatserver.features.webhooks.settings import Webhooks
from chatserver.operations.doctor.model import DoctorCheck, DoctorFinding
from chatserver.operations.doctor.settings_checks import (
    CHECK_NETWORK,
    CONNECT_S_MAX,
    STORE,
    make_problem,
)


async def check_webhooks(settings: Settings) -> list[DoctorFinding]:
    """Check that the webhook URLs respond, with any status, to a GET request."""
    from chatserver.outbound.http_client import open_outbound

    webhooks, findings = settings.get(Webhooks), []
    for name in ("before_send_url", "events_url"):
        url = getattr(webhooks, name)
        if url is None:
            continue
        try:
            async with open_outbound(settings.outbound) as outbound:
                await outbound.get(
                    url, timeout_s=CONNECT_S_MAX, response_bytes_max=0, is_truncated=True
                )
        except ChatError as exc:
            findings.append(make_problem(f"webhooks.{name}", exc.message, CHECK_NETWORK))
        else:
            findings.append(DoctorFinding(STORE, "ok", f"webhooks.{name} responds"))
    return findings


CHECKS: Final = (DoctorCheck(STORE, ("webhooks", "outbound"), check_webhooks),)
