"""Self-test checks of the guarantees across Redis, DynamoDB and S3, with the real workers.

Ten old messages are written to DynamoDB and archived to S3. Ten recent messages stay in DynamoDB,
and ten are sent through Redis. Then the chat is read as one history, and a device catches up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import msgspec

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq, UserId, direct_chat_id
from chatserver.domain.seq_gap_checks import is_contiguous, iter_not_ascending
from chatserver.errors import ChatError, Conflict, Forbidden, NotFound
from chatserver.loadtest.delivery_checker import ChatRecord, Findings, ReceivedSeqs, encode_key
from chatserver.operations.selftest.model import CheckFailed, CheckSkipped, SelftestCheck, require
from chatserver.operations.selftest.resources import Names
from chatserver.protocol import frames
from chatserver.service.history.sync import DeviceSync
from chatserver.service.messaging.message_sender import OutgoingMessage
from chatserver.warm.messages.messages import PersistItem
from workers.archive.container import ArchiveContainer
from workers.persist.worker import run_persist

STORE: Final = "chat"
EACH: Final = 10  # number of messages in each tier
OLD_S: Final = 30 * 86_400
STORED_S_MAX: Final = 60.0
IN_USE: Final = (
    "Redis is in use: for this check, set CHAT_REDIS_URL to an empty database or cluster that no "
    "other chatserver process uses"
)


class ChatChecks:
    """Checks on one direct chat, in order."""

    def __init__(self, container: StorageContainer, names: Names, *, is_claimed: bool) -> None:
        self._container = container
        self._is_claimed = is_claimed
        self._names = names
        self._alice = UserId(f"{names.prefix}-a")
        self._bob = UserId(f"{names.prefix}-b")
        self._chat = ChatId("")
        self._seqs: list[int] = []
        self._is_ready = False

    def list_checks(self) -> list[SelftestCheck]:
        return [
            SelftestCheck(STORE, "messages in DynamoDB, archived to S3", self._prepare),
            SelftestCheck(STORE, "send: order, and idempotency by ref", self._check_send),
            SelftestCheck(STORE, "acknowledged messages are stored", self._check_store),
            SelftestCheck(STORE, "one history across Redis, DynamoDB and S3", self._check_read),
            SelftestCheck(STORE, "resume from a cursor", self._check_resume),
            SelftestCheck(STORE, "non-members are refused", self._check_refusal),
        ]

    async def _prepare(self) -> str:
        if not self._is_claimed:
            raise CheckSkipped(IN_USE)
        core = self._container
        for user in (self._alice, self._bob):
            await core.directory.put_user_if_absent(user, None, core.clock.time())
        now_us = int(core.clock.time() * 1e6)
        self._chat = direct_chat_id(self._alice, self._bob)
        items = []
        for seq in range(1, 2 * EACH + 1):
            ts = now_us - (OLD_S if seq <= EACH else 60) * 1_000_000 + seq * 1000
            message = frames.Message(
                seq=seq,
                ts=ts,
                chat=self._chat,
                mid=f"M{seq}",
                sender=self._alice,
                ref=f"w{seq}",
                kind="text",
                body=f"message {seq}",
            )
            items.append(PersistItem(message, self._bob))
        await core.messages.put_batch(items, 60.0)
        await core.chat_creator.open_direct(self._alice, self._bob)
        moved = (await core.get(ArchiveContainer).archiver.archive_chat(self._chat)).moved
        require(moved == EACH, f"{moved} of {EACH} messages were archived")
        self._is_ready = True
        return f"{2 * EACH} written, {moved} of them moved to S3"

    async def _check_send(self) -> str:
        self._require_chat()
        acks = [await self._send_one(number) for number in range(1, EACH + 1)]
        repeats = [await self._send_one(number) for number in range(1, EACH + 1)]
        self._seqs = [ack.seq for ack in acks]
        require([(a.seq, a.ts, a.mid) for a in acks] == [(a.seq, a.ts, a.mid) for a in repeats],
                "a repeated ref was acknowledged at another position")  # fmt: skip
        require(all(ack.dup for ack in repeats), "a repeated ref was not recognized")
        require(is_contiguous(self._seqs) and self._seqs[0] == 2 * EACH + 1,
                f"the seqs are {self._seqs}")  # fmt: skip
        require(
            not list(iter_not_ascending([ack.ts for ack in acks])), "the times are not increasing"
        )
        try:
            await self._send_one(1, body="another text")
        except Conflict:
            return f"{EACH} messages, each sent twice; another body is refused"
        raise CheckFailed("a ref was accepted again with another body")

    async def _check_store(self) -> str:
        self._require_chat()
        require(self._seqs, "no message was sent")
        began = time.monotonic()
        task = asyncio.create_task(run_persist(self._container, self._names.prefix))
        try:
            async with asyncio.timeout(STORED_S_MAX):
                while await self._find_stored() < self._seqs[-1]:
                    if task.done():
                        task.result()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise CheckFailed(f"not stored after {STORED_S_MAX:g} s") from None
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ChatError):
                await task
        return f"after {time.monotonic() - began:.1f} s"

    async def _check_read(self) -> str:
        self._require_chat()
        findings, received = Findings(), ReceivedSeqs()
        book = ChatRecord(self._chat, 1, findings)
        tiers: dict[str, int] = {}
        after = 0
        while True:
            frame = frames.History(id=1, chat=self._chat, after=after, limit=EACH)
            page = await self._container.history.get_page(self._bob, frame)
            for raw in page.messages:
                message = msgspec.json.decode(raw, type=frames.Message)
                require(message.body == f"message {message.seq}", f"seq {message.seq}: wrong body")
                book.put(message.seq, encode_key(1, message.seq))
                received.record_pushed(message.seq, "reader", findings)
                tiers[page.tier] = tiers.get(page.tier, 0) + 1
                after = message.seq
            if not page.has_more:
                break
        book.finish([])
        require(not findings.examples, "; ".join(findings.examples))
        require(after == 3 * EACH and not received.missing, f"the history ends at {after}")
        require(len(tiers) == 3, f"messages came from {tiers}, expected three tiers")
        return ", ".join(f"{count} from {tier}" for tier, count in sorted(tiers.items()))

    async def _check_resume(self) -> str:
        self._require_chat()
        core = self._container
        sync = DeviceSync(
            inboxes=core.inboxes, log=core.chat_log, older=core.older_tiers, clock=core.clock,
            views=core.views, pages=core.settings.chats.page_bounds,
        )  # fmt: skip
        events: list[int] = []
        while missed := await sync.list_missed(self._bob, Seq(len(events)), 1000):
            events += [message.seq for message in missed]
        middle = events[len(events) // 2] if events else 0
        resumed = [message.seq for message in await sync.list_missed(self._bob, Seq(middle), 1000)]
        require(len(events) >= EACH, f"the inbox has {len(events)} events of {EACH} messages")
        require(events == list(range(1, len(events) + 1)), f"the seqs of the inbox are {events}")
        require(resumed == events[middle:], "resuming from a cursor returned the wrong events")
        return f"{len(events)} events, {len(resumed)} after the cursor"

    async def _check_refusal(self) -> str:
        self._require_chat()
        stranger = UserId(f"{self._names.prefix}-c")
        frame = frames.Send(id=1, chat=self._chat, ref="x1", body="let me in")
        read = frames.History(id=1, chat=self._chat, limit=1)
        for what, call in (
            ("send", self._container.messaging.send(OutgoingMessage(stranger, frame))),
            ("read", self._container.history.get_page(stranger, read)),
        ):
            try:
                await call
            except (Forbidden, NotFound):
                continue
            raise CheckFailed(f"a non-member could {what}")
        return "neither send nor read"

    def _require_chat(self) -> None:
        if not self._is_ready:
            raise CheckSkipped("the first check did not create the chat")

    async def _find_stored(self) -> int:
        head = await self._container.messages.find_head(self._chat)
        return 0 if head is None else head.seq

    async def _send_one(self, number: int, body: str = "") -> frames.Ack:
        seq = 2 * EACH + number
        frame = frames.Send(id=1, chat=self._chat, ref=f"s{number}", body=body or f"message {seq}")
        return await self._container.messaging.send(OutgoingMessage(self._alice, frame))
