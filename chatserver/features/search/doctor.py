"""Check of the index folder for `chatserver doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from chatserver.config import Settings
from chatserver.features.search.settings import Search
from chatserver.operations.doctor.model import DoctorCheck, DoctorFinding
from chatserver.operations.doctor.settings_checks import STORE, make_problem


async def check_search(settings: Settings) -> list[DoctorFinding]:
    """Check the folder of the index, if the index is in a folder."""
    index = settings.get(Search).index
    return [] if index in ("", "s3") else [_check_folder("search.index", Path(index))]


def _check_folder(setting: str, folder: Path) -> DoctorFinding:
    """Check that a folder exists or can be created, and that this user can write to it."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        return make_problem(setting, f"{nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        fix = f"let the user of the processes write to {nearest}"
        return make_problem(setting, f"{folder} cannot be written by this user", fix)
    return DoctorFinding(STORE, "ok", f"{setting} is a folder that this user can write to")


CHECKS: Final = (DoctorCheck(STORE, ("search",), check_search),)
