"""Error codes with their HTTP status and close code, and all WebSocket close codes."""

from __future__ import annotations

import dataclasses
import enum


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """An error code's HTTP status, retryability and close code."""

    http_status: int
    is_temporary: bool
    close: Close | None = None


class Close(enum.IntEnum):
    """Close codes sent by the server. 3000-3499: reconnect. 3500-3999: do not reconnect."""

    SHUTDOWN = 3000
    SLOW = 3001
    OVERLOADED = 3002
    NO_PONG = 3003
    REPLACED = 3004
    UNAUTHENTICATED = 3500
    BAD_PROTOCOL = 3501
    BANNED = 3502
    TOO_MANY_SESSIONS = 3503
    BLOCKED = 3504


CODES: dict[str, Meaning] = {
    "bad_request": Meaning(400, is_temporary=False, close=Close.BAD_PROTOCOL),
    "too_large": Meaning(413, is_temporary=False, close=Close.BAD_PROTOCOL),
    "unauthenticated": Meaning(401, is_temporary=False, close=Close.UNAUTHENTICATED),
    "forbidden": Meaning(403, is_temporary=False),
    "not_found": Meaning(404, is_temporary=False),
    "conflict": Meaning(409, is_temporary=False),
    "rate_limited": Meaning(429, is_temporary=True),
    "unavailable": Meaning(503, is_temporary=True, close=Close.OVERLOADED),
    "overloaded": Meaning(503, is_temporary=True, close=Close.OVERLOADED),
    "internal": Meaning(500, is_temporary=False),
}
