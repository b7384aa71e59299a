"""Check of the model settings for `chatserver doctor`."""

from __future__ import annotations

from typing import Final

from chatserver.config import Settings
from chatserver.extras import describe_missing, is_installed
from chatserver.features.companions.settings import Companions
from chatserver.operations.doctor.model import DoctorCheck, DoctorFinding
from chatserver.operations.doctor.settings_checks import STORE, check_connection, make_problem


async def check_companions(settings: Settings) -> list[DoctorFinding]:
    """Check the library and the URL of the OpenAI API, if there is a key for it."""
    companions = settings.get(Companions)
    if not companions.openai_key.get_secret_value():
        return []
    if not is_installed("ai"):
        return [make_problem("companions.openai_key", describe_missing("ai"))]
    return [await check_connection("companions.openai_url", companions.openai_url)]


CHECKS: Final = (DoctorCheck(STORE, ("companions",), check_companions),)
