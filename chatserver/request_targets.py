"""Request targets of HTTP."""

from __future__ import annotations

import re
from typing import Final

_ORIGIN: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


def to_origin_form(target: str) -> str:
    """Return a request target without its origin: `http://host/path` becomes `/path`.

    Every server must accept this absolute form (RFC 9112 section 3.2.2), which clients send to
    proxies.
    """
    match = _ORIGIN.match(target)
    if match is None:
        return target
    path = target[match.end() :]
    return path if path.startswith("/") else f"/{path}"
