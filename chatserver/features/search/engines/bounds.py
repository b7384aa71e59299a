"""Bounds of a query that both engines keep. No I/O.

An engine adds its own where it works in another way; these decide what a user finds.
"""

from __future__ import annotations

from typing import Final

RANKED_MAX: Final = 500  # matches that are sorted by relevance
SCOPED_CHATS_MAX: Final = 64  # SQLite: more chats are a filter on the matches
SCAN_SIZES: Final = (512, 2_048, 8_192)  # SQLite: matches that a call compares with this filter
MATCHES_MAX: Final = 1_000  # LanceDB: of one query of the table
WINDOWS_MAX: Final = 12  # LanceDB: queries of the table by which a call finds the newest matches
PREFIX_CHARS_MAX: Final = 8  # LanceDB: longer beginnings are compared with the message itself
