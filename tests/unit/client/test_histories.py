"""The Python SDK replays the recorded histories, as every SDK must; they are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.histories import FOLDER, load, replay
from tests.support.history_recorder import record_all

FILES = sorted(FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_client_replays_recorded_histories(file: Path) -> None:
    """The same inputs give the same frames, events and results."""
    histories = load(file.read_text("utf-8"))

    assert histories
    for history in histories:
        for number, ((method, args, result), found) in enumerate(replay(history)):
            assert found == result, (history.name, number, method, args)


def test_recorded_histories_are_up_to_date() -> None:
    """If this fails, run `make docs`."""
    known = {file.name: file.read_text("utf-8") for file in FILES}

    assert known == record_all()
