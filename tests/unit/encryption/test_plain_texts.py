"""Notes about texts that encryption does not cover."""

from __future__ import annotations

from chatserver.config import Encryption, Settings
from chatserver.encryption.plain_texts import list_plain_texts
from chatserver.features.search.settings import Search


def test_encryption_names_the_places_of_plain_text() -> None:
    """Whoever turns encryption on learns what it does not cover."""
    encrypted = Encryption(provider="kms", kms_key_id="key")

    assert list_plain_texts(Settings()) == []
    (redis,) = list_plain_texts(Settings(encryption=encrypted))
    assert "append-only file" in redis[0]
    both = list_plain_texts(Settings(encryption=encrypted, search=Search(index="/index")))
    assert both[0] == redis and "search index" in both[1][0]
