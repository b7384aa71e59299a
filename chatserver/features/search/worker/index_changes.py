"""Conversion of chat entries to index changes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from chatserver.domain.archive_segments import ARCHIVED_KIND, LOST_KIND
from chatserver.features.search.model import Document, DocumentRef, IndexChanges
from chatserver.features.search.tokenizer import normalize, tokenize
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message

_PLACEHOLDERS = frozenset({ARCHIVED_KIND, LOST_KIND})


def join_tokens(body: str) -> str:
    """Return the tokens of a message body, separated by spaces."""
    return " ".join(token.text for token in tokenize(normalize(body)))


def add_entries(changes: IndexChanges, entries: Iterable[Message]) -> None:
    """Add the index changes for `entries`, which must be in seq order within each chat.

    Guarantees:
        Idempotent: adding the same entries again, in order, gives the same documents.
    """
    for entry in entries:
        if is_message(entry):
            _add_message(changes, entry)
        elif entry.target is not None and not entry.deleted:
            _add_change(changes, entry, DocumentRef(entry.chat, entry.target))


def _add_message(changes: IndexChanges, message: Message) -> None:
    ref = DocumentRef(message.chat, message.seq)
    changes.edits.pop(ref, None)
    if message.deleted or message.kind in _PLACEHOLDERS:
        changes.documents.pop(ref, None)
        changes.removed.add(ref)
        return
    changes.removed.discard(ref)
    changes.documents[ref] = Document(
        chat=message.chat,
        seq=message.seq,
        ts=message.ts,
        sender=message.sender,
        tokens=join_tokens(message.body),
        has_file=bool(message.attachments),
        expires_at=message.expires_at or 0,
    )


def _add_change(changes: IndexChanges, entry: Message, target: DocumentRef) -> None:
    if entry.kind == "delete":
        changes.documents.pop(target, None)
        changes.edits.pop(target, None)
        changes.removed.add(target)
    elif entry.kind == "edit" and target not in changes.removed:
        tokens = join_tokens(entry.body)
        document = changes.documents.get(target)
        if document is None:
            changes.edits[target] = tokens
        else:
            changes.documents[target] = document._replace(tokens=tokens)
