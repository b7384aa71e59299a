"""Logs: private data is removed, no line can be forged, writing never raises."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from chatserver.telemetry.logs import REMOVED, configure_logs, render_for_terminal
from chatserver.telemetry.metrics import LOG_LINES_DROPPED, close_label

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restore the logging configuration for other tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def logged(**fields: object) -> dict[str, object]:
    stream = io.StringIO()
    configure_logs("json", "info", process="gateway", stream=stream)
    structlog.get_logger("chatserver.test").info("it happened", **fields)
    line: dict[str, object] = json.loads(stream.getvalue())
    return line


def test_json_line_has_process_time_level_and_fields() -> None:
    """Log processors depend on these names."""
    line = logged(user="alice", count=3)

    assert line["process"] == "gateway"
    assert line["event"] == "it happened"
    assert line["level"] == "info"
    assert (line["user"], line["count"]) == ("alice", 3)
    assert str(line["timestamp"]).endswith("Z")


@pytest.mark.parametrize("name", ["body", "token", "password", "secret", "Authorization", "text"])
def test_field_with_a_private_name_is_removed(name: str) -> None:
    """Message texts and secrets never reach a log, even by mistake."""
    assert logged(**{name: "canary"})[name] == REMOVED


def test_private_field_inside_another_is_removed() -> None:
    """A frame that is logged completely does not reveal its body."""
    line = logged(frame={"type": "send", "body": "canary", "list": [{"token": "canary"}]})

    assert "canary" not in json.dumps(line)


def test_token_in_any_value_is_removed() -> None:
    """A token inside a URL or an error message is removed."""
    line = logged(url=f"ws://host/?token={TOKEN}", error=ValueError(f"bad token {TOKEN}"))

    assert "eyJ" not in json.dumps(line)


def test_library_log_lines_pass_the_same_rules() -> None:
    """Log lines of libraries are structured, cleaned, and written from WARNING on."""
    stream = io.StringIO()
    configure_logs("json", "debug", process="api", stream=stream)

    logging.getLogger("some.library").debug("frame %s", "canary")
    logging.getLogger("some.library").warning("refused %s", TOKEN)

    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["event"] == f"refused {REMOVED}"


def test_long_value_is_truncated() -> None:
    """The length of a line is bounded."""
    assert len(str(logged(value="x" * 100_000)["value"])) < 2_100


@given(st.text(), st.text())
def test_terminal_line_with_any_text_has_no_control_character(event: str, value: str) -> None:
    """Neither an event nor a field can start a new line or move the cursor."""
    line = render_for_terminal(None, "info", {"event": event, "level": "info", "name": value})

    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in line)


def test_line_that_cannot_be_written_is_counted_and_dropped() -> None:
    """A full disk does not end the process."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    before = LOG_LINES_DROPPED._value.get()
    configure_logs("json", "info", process="gateway", stream=Full())

    structlog.get_logger("chatserver.test").info("it happened")

    assert LOG_LINES_DROPPED._value.get() == before + 1


@pytest.mark.parametrize(
    ("code", "label"),
    [(1000, "1000"), (3001, "3001"), (3501, "3501"), (4999, "other"), (0, "other")],
)
def test_close_label_of_any_code_is_bounded(code: int, label: str) -> None:
    """A client cannot create new time series with its own close codes."""
    assert close_label(code) == label
