"""Parsing of the input that a model generated for a tool call."""

from __future__ import annotations

from typing import Any

import msgspec


def parse_input(text: str) -> dict[str, Any] | None:
    """Parse a tool call's input; return None if it is not a JSON object. Blank input is {}."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
