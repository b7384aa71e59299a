"""The command line of a release with the example migrations 2 to 6.

`python -m tests.integration.warm.schema.next_release`. Its workers write `thread` with each reply.
"""

from __future__ import annotations

import runpy

from chatserver.warm.archive import archivable_entries
from chatserver.warm.dynamo.client import Item
from chatserver.warm.messages import message_changes, messages
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.schema import active_version, migrations
from tests.integration.warm.schema.examples.migrations import EXAMPLES
from tests.integration.warm.schema.examples.thread_index import THREAD, thread_of


def encode_with_thread(item: PersistItem, removed_at: int | None = None) -> Item:
    encoded = encode_item(item, removed_at)
    thread = thread_of(encoded)
    return encoded if thread is None else {**encoded, THREAD: thread}


if __name__ == "__main__":
    for module in (archivable_entries, message_changes, messages):
        module.encode_item = encode_with_thread  # type: ignore[attr-defined]
    message_changes._KNOWN.add(THREAD)
    migrations.MIGRATIONS = EXAMPLES  # type: ignore[misc]
    active_version.NEWEST = EXAMPLES[-1].number
    runpy.run_module("tests.support.cli", run_name="__main__")
