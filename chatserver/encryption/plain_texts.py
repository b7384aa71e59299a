"""Texts that encryption does not cover, for `encryption status` and `doctor`."""

from __future__ import annotations

from chatserver.config import Settings


def list_plain_texts(settings: Settings) -> list[tuple[str, str]]:
    """Return where texts are not encrypted although encryption is on: `(message, fix)` each."""
    if settings.encryption.provider == "none":
        return []
    redis = (
        "Redis and its append-only file have messages in plain text. Deleted and expired messages "
        "stay in the file until Redis rewrites it",
        "encrypt the disk of Redis; BGREWRITEAOF rewrites the file at once",
    )
    return [redis, *(text for section in settings.features for text in section.list_plain_texts())]
