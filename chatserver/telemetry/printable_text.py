"""Escaping of untrusted text for terminals: control codes and changes of text direction."""

from __future__ import annotations

import re
from collections.abc import Callable

# Matches C0 and C1 controls except newline and tab, direction marks and overrides, and the
# separators that some terminals treat as line ends.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def replace_unprintable(
    text: str, replacement: str | Callable[[re.Match[str]], str] = "\ufffd"
) -> str:
    """Return `text` with each harmful character replaced."""
    return _UNPRINTABLE.sub(replacement, text)


def escape_unprintable(text: str) -> str:
    """Return `text` with each harmful character escaped, such as ``\\u001b``."""
    return replace_unprintable(text, lambda match: f"\\u{ord(match[0]):04x}")
