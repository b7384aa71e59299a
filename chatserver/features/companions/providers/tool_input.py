"""Input of a tool call, as the model generated it."""

from __future__ import annotations

from typing import Any

import msgspec


def parse_input(text: str) -> dict[str, Any] | None:
    """Return the input of a tool call; None if it is not a JSON object."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
