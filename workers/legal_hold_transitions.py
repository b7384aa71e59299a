"""Legal hold worker: puts new holds in force, and deletes message copies when holds end.

New messages are protected as soon as the hold is written (`chatserver.warm.chats.legal_holds`). For
a hold in state `starting`, this worker copies the older messages that will expire. For a hold in
state `ending`, it deletes the copies. After a crash, the next pass starts over.
"""

from __future__ import annotations

from typing import Final

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.protocol.frames import Message
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.chats.legal_holds import Hold
from workers.periodic_work import run_periodically

log = structlog.get_logger()

PAGE: Final = 100
LEASE_S: Final = 60.0
INTERVAL_S: Final = 5.0


class LegalHoldWorker:
    """Processes legal holds, under a lease."""

    def __init__(self, container: StorageContainer, owner: str) -> None:
        self._container = container
        self._holds = container.holds
        self._settle_s = container.settings.persist.write_timeout_s
        self.lease = container.make_lease("holds", owner, LEASE_S)

    async def sweep(self) -> None:
        """Process each legal hold once.

        Guarantees:
            Idempotent, and safe to run concurrently.
        """
        start = None
        while True:
            page = await self._holds.list_chats(PAGE, start)
            for chat in page.items:
                hold = await self._holds.find(chat)
                if hold is not None and hold.state == "starting":
                    await self._begin(hold)
                elif hold is None or hold.state == "ending":
                    await self._end(chat)
            start = page.next
            if start is None:
                return

    async def _begin(self, hold: Hold) -> None:
        if self._container.clock.time() < hold.since_ms / 1000 + self._settle_s:
            return  # a writer may have checked for holds before this one was stored: wait
        start, count = None, 0
        while True:
            page = await self._container.message_indexes.list_chat(
                hold.chat, limit=PAGE, start=start
            )
            ending = [item for item in page.items if item.expires_at is not None]
            await self._holds.copy_versions(ending)
            failpoint("holds.in_begin")
            count, start = count + len(ending), page.next
            await self.lease.claim()
            if start is None:
                break
        if await self._holds.set_state(hold.chat, "starting", "in_force"):
            log.info("hold.activated", chat=hold.chat, copies=count)

    async def _end(self, chat: str) -> None:
        """Delete the copies, and release the files that only the copies reference."""
        count = 0
        while copies := (await self._holds.list_copies(chat, PAGE)).items:
            for copy in copies:
                if copy.attachments:
                    await self._release(copy)
                await self._holds.remove_copy(copy)
                failpoint("holds.in_end")
            count += len(copies)
            await self.lease.claim()
        await self._holds.remove(chat)
        log.info("hold.ended", chat=chat, copies=count)

    async def _release(self, copy: Message) -> None:
        now = await self._container.older_tiers.list_after(copy.chat, copy.seq - 1, 1)
        attached = {attachment.id for attachment in now[0].attachments} if now else set()
        lost = [attachment for attachment in copy.attachments if attachment.id not in attached]
        await self._container.release_files(copy.seq, lost)


async def run_holds(container: StorageContainer, owner: str) -> None:
    """Process legal holds until cancelled.

    Raises:
        Unavailable: a store is unavailable; restart the worker.
    """
    worker = LegalHoldWorker(container, owner)
    await run_periodically(worker.lease, INTERVAL_S, worker.sweep)
