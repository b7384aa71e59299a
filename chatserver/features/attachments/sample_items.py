"""Example items of files, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.domain.ids import ChatId, UserId
from chatserver.features.attachments.model import File
from chatserver.features.attachments.tables import FileField as Field
from chatserver.features.attachments.warm import FILE, due_key, owned_key
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, TableSchema

_S: Final = 1_795_000_000
_CHAT: Final = ChatId("d-alice-bob")
_SENT: Final = File(
    id="f1",
    owner=UserId("bob"),
    chat=_CHAT,
    name="sea.png",
    type="image/png",
    size=1024,
    sha256="9f86d081884c7d65",
    created=_S,
    due=None,
    phase="ready",
    seqs=frozenset({2}),
    width=640,
    height=480,
    has_thumb=True,
    is_processed=True,
    rev=3,
)
_WAITING: Final = File(
    id="f4",
    owner=UserId("bob"),
    chat=_CHAT,
    name="plan.pdf",
    type="application/pdf",
    size=4096,
    sha256="60303ae22b998861",
    created=_S,
    due=_S + 86_400,
)


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return a sent and an unsent file, and the items that belong to them."""
    if table is not DIRECTORY:
        return []
    counts = {Field.UPLOADS: {"N": "1"}, Field.BYTES: {"N": str(_SENT.size + _WAITING.size)}}
    return [
        *(FILE.encode(file) for file in (_SENT, _WAITING)),
        *(row_key(*owned_key(file)) for file in (_SENT, _WAITING)),
        row_key(*due_key(_WAITING.id, _S + 86_400)),
        row_key(user_key("bob"), "uploads#bob") | counts,
    ]
