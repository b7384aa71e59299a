"""Query limits for both engines. No I/O.

The limits affect which messages a search finds.
"""

from __future__ import annotations

from typing import Final

# Maximum matches of a search sorted by relevance. SQLite sorts only the newest matches.
RANKED_MAX: Final = 500
SCOPED_CHATS_MAX: Final = 64  # SQLite: with more chats, the FTS5 query has no chat filter
SCAN_SIZES: Final = (512, 2_048, 8_192)  # SQLite: matches read per query without a chat filter
MATCHES_MAX: Final = 1_000  # LanceDB: maximum matches per table query
WINDOWS_MAX: Final = 12  # LanceDB: maximum table queries to find the newest matches
PREFIX_CHARS_MAX: Final = 8  # LanceDB: maximum characters of a prefix in a query
