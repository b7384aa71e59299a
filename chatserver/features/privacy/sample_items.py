"""Example items of exports and erasures, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.features.privacy.model import Job
from chatserver.features.privacy.tables import JobField as Field
from chatserver.features.privacy.warm.jobs import (
    DAY_S,
    EXPORT_POINTER_TTL_S,
    EXPORT_PREFIX,
    JOB,
    export_expiry_key,
    waiting_key,
)
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, TableSchema

_MS: Final = 1_795_000_000_000
_S: Final = _MS // 1000
_EXPORT: Final = Job(
    id="j1",
    kind="export",
    user="alice",
    created_ms=_MS,
    changed_ms=_MS + 5_000,
    state="ready",
    progress=100,
    size=20_480,
    tries=1,
    expires_at=_S + 7 * DAY_S,
)
_ERASURE: Final = Job("j2", "erasure", "mallory", _MS, _MS)


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return a finished export and a waiting erasure, and the items that refer to them."""
    if table is not DIRECTORY:
        return []
    newest = {
        Field.JOB: {"S": _EXPORT.id},
        Field.DAY: {"N": str(_S // DAY_S)},
        Field.EXPORTS: {"N": "1"},
    }
    return [
        JOB.encode(_EXPORT),
        JOB.encode(_ERASURE),
        row_key(*waiting_key(_ERASURE)),
        row_key(*export_expiry_key(_EXPORT.id, _S + 7 * DAY_S)),
        row_key(user_key("alice"), "exports#alice") | newest,
        row_key(user_key("alice"), EXPORT_PREFIX + _EXPORT.id)
        | {Field.EXPIRES_AT: {"N": str(_S + EXPORT_POINTER_TTL_S)}},
    ]
