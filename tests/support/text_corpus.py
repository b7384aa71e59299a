"""Names, texts and queries in many scripts, as people write and type them.

The data are in `text_corpus.json`, with invisible characters as escapes. Tests let them go through
messages, names and search.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec


class Case(NamedTuple):
    """A person's name and a text in one script.

    `found`: queries that find the text. `missed`: queries that must not find it.
    """

    script: str
    name: str
    text: str
    found: list[str]
    missed: list[str]


CORPUS: Final = [
    Case(**fields)
    for fields in msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes())
]
