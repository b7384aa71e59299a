"""Bodies of messages of a load test."""

from __future__ import annotations

import pytest

from chatserver.loadtest.wire import Address
from chatserver.loadtest.worker_state import WorkerState, get_body_text

TEXTS = (None, "", "Hello", " two  spaces ", "=00000000 not a checksum", "naïve 👍", "x" * 300)


def make_state() -> WorkerState:
    return WorkerState(run="r", address=Address("h", 1), mint=str, body_bytes=120)


@pytest.mark.parametrize("text", TEXTS)
def test_body_has_the_key_the_time_and_the_text(text: str | None) -> None:
    """The receiver gets the text without the header; without a text, the body has its size."""
    state = make_state()
    body = state.build_body(3, 7, 123456, text)

    read = state.parse_body("load-r-3", "r-3-7", body)

    assert read is not None and read.due_us == 123456
    assert state.findings.examples == []
    assert get_body_text("r", body) == read.text
    if text is None:
        assert len(body) == 120
    else:
        assert read.text == text


@pytest.mark.parametrize("text", TEXTS)
def test_each_changed_character_is_a_violation(text: str | None) -> None:
    """Also in the header and in the checksum. A body of another run is not read.

    The scheduled time is the exception in a body without a checksum: only its sender knows it.
    """
    state = make_state()
    body = state.build_body(3, 7, 123456, text)

    for at in range(len("r "), len(body)):
        if text is None and body[at] in "123456" and at > len("r 3 7"):
            continue
        changed = body[:at] + chr(ord(body[at]) ^ 1) + body[at + 1 :]
        if changed.count(" ") >= 4:
            state.parse_body("load-r-3", "r-3-7", changed)
            assert state.findings.counts["mismatched"], (at, changed)
            state.findings.counts.clear()

    assert state.parse_body("load-r-3", "r-3-7", body.replace("r", "s", 1)) is None
