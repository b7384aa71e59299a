"""Cache of decoded batches whose entries did not fit into the queues. No I/O.

A writer that needs the entries of one chat must read the whole batch again. The entries of the
other chats in the batch are cached, because they are probably needed soon.

Bound: `bytes_max`, or one batch if that is larger. The oldest batch is dropped first.
"""

from __future__ import annotations

from collections import OrderedDict

from chatserver.domain.ids import ChatId
from workers.persist.batch_changes import EntryWrite
from workers.persist.chat_queues import estimate_size

WritesByChat = dict[ChatId, list[EntryWrite]]


class BatchCache:
    """Decoded entries, by batch and chat. Reading a chat's entries removes them."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: OrderedDict[str, tuple[WritesByChat, int]] = OrderedDict()

    def put(self, first: str, writes: WritesByChat) -> None:
        """Cache entries of the batch whose first entry has id `first`."""
        self._drop(first)
        size = sum(map(estimate_size, writes.values()))
        self._batches[first] = writes, size
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._batches) > 1:
            self._drop(next(iter(self._batches)))

    def pop(self, first: str, chat: ChatId) -> list[EntryWrite] | None:
        """Remove and return the entries of a chat in a batch; None if they are not cached."""
        writes, _ = self._batches.get(first, ({}, 0))
        popped = writes.pop(chat, None)
        if not writes:
            self._drop(first)
        return popped

    def _drop(self, first: str) -> None:
        _, size = self._batches.pop(first, ({}, 0))
        self._bytes -= size
