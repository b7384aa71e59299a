"""The keys in Redis match docs/data-model.md, including types and fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from chatserver.hot.redis.factory import open_hot
from tests.integration.hot.every_key import PARTITIONS, use_everything
from tests.integration.hot.support import redis_settings
from tests.support.servers.processes import redis_client

DOCUMENT = Path(__file__).parents[4] / "docs" / "data-model.md"
_ROW = re.compile(r"^\| `(\{[^`]+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_FIELD_ROW = re.compile(r"^\| `([^`{]+)` \|", re.MULTILINE)
_ID = "[A-Za-z0-9_-]+"
# Hashes and streams whose fields are ids or positions, which the page describes in words.
_FREE = (
    "members", "turnover", "log", "over", "revs", "hidden", "inbox", "backlog", "where",
    "large", "since", "pushed", "units", "flushes", "rounds", "progress", "images",
    "turns",
)  # fmt: skip


def matcher(key: str) -> re.Pattern[str]:
    """Return a pattern for all keys that match a documented key."""
    pattern = re.escape(key).replace(re.escape("{pN}"), r"\{p\d+\}")
    return re.compile(re.sub(r"<\w+>", _ID, pattern))


def fields_of(client: Any, name: bytes, kind: str) -> set[str]:
    """Return the fields of a hash, or of a stream's entries, with placeholders for ids."""
    if kind == "hash":
        found = client.hkeys(name)
    elif kind == "stream":
        found = [field for _, fields in client.xrange(name) for field in fields]
    else:
        found = []
    found = [b"#<digest>" if b":chat:" in name and field[:1] == b"#" else field for field in found]
    names = {re.sub(r"^([cdlrt]):.*", r"\1:<chat>", field.decode()) for field in found}
    placeholder = "<sender>" if b":chat:" in name else "<session>"
    names = {
        re.sub(r"^g:.*", "g:<gateway>", re.sub(r"^s:.*", f"s:{placeholder}", n)) for n in names
    }
    names = {re.sub(r"^erase:.*", "erase:<user>", name) for name in names}
    return {re.sub(r"^m:.*:.*", "m:<chat>:<user>", name) for name in names}


async def test_redis_keys_match_the_documentation(redis_url: str) -> None:
    """Every key in Redis is documented, and every documented key is used."""
    section = DOCUMENT.read_text("utf-8").partition("\n## Redis\n")[2].partition("\n## ")[0]
    rows = {matcher(key): (kind, holds) for key, kind, holds in _ROW.findall(section)}
    described = set(_FIELD_ROW.findall(section))
    seen = set()
    async with open_hot(redis_settings(redis_url, partitions=PARTITIONS)) as hot:
        await use_everything(hot)

    with redis_client(redis_url) as client:
        for name in client.scan_iter():
            (row,) = [row for row in rows if row.fullmatch(name.decode())]
            kind, holds = rows[row]
            seen.add(row)
            assert client.type(name).decode() == kind, name
            if name.decode().split(":")[1] not in _FREE:
                known = described | set(re.findall(r"`([^`]+)`", holds))
                assert fields_of(client, name, kind) <= known, name

    assert seen == set(rows)
