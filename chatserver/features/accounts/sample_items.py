"""Example account items, for the generated table documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chatserver.features.accounts.warm.accounts import CREDENTIAL, Credential
from chatserver.features.accounts.warm.search_entries import encode_entry
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import DIRECTORY, TableSchema

_HASH: Final = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"


def sample_items(table: TableSchema) -> Iterable[Item]:
    """Return a user's password item and a user search entry."""
    if table is not DIRECTORY:
        return []
    return [
        CREDENTIAL.encode(Credential("alice", _HASH, 1_795_000_000_000)),
        encode_entry("alice", "alice", ("alice", "smith")),
    ]
