"""Query limits for both engines. No I/O.

The limits affect which messages a search finds.
"""

from __future__ import annotations

from typing import Final

RANKED_MAX: Final = 500  # the newest matches, which are then sorted by relevance
SCOPED_CHATS_MAX: Final = 64  # SQLite: with more chats, matches are filtered after the FTS5 query
SCAN_SIZES: Final = (512, 2_048, 8_192)  # SQLite: matches per query if there are more chats
MATCHES_MAX: Final = 1_000  # LanceDB: matches per table query
WINDOWS_MAX: Final = 12  # LanceDB: table queries to find the newest matches
PREFIX_CHARS_MAX: Final = 8  # LanceDB: longer prefixes are cut; the rest is checked in the message
