"""The queues of chats that wait to be persisted: order, fairness and limits."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, GatewayId, Seq, Ts
from chatserver.hot.chats.persist_backlog import CommittedMessage
from chatserver.protocol.frames import Message
from chatserver.warm.chats.member_states import MarkUpdate
from chatserver.warm.messages.messages import PersistItem
from workers.persist.batch_changes import EntryWrite
from workers.persist.batch_writer import WRITE_MAX, Piece
from workers.persist.chat_queues import CHUNK_MAX, Batch, ChatQueue, ChatQueues, Chunk


def work_of(chat: str, seq: int, *, is_awaited: bool = False) -> EntryWrite:
    """Return the work for a message."""
    message = Message(seq, seq, chat, f"m{seq}", "bob", f"r{seq}", "text", "hi")
    raw = CommittedMessage(Seq(seq), Ts(seq), None, b"x" * 100, is_awaited=is_awaited)
    return EntryWrite(GatewayId("gw1"), raw, PersistItem(message, None))


def piece_of(chat: str, first: int, count: int, *, is_awaited: bool = False) -> Piece:
    """Return a batch's work for one chat."""
    works = [work_of(chat, seq, is_awaited=is_awaited) for seq in range(first, first + count)]
    return Piece(ChatId(chat), works)


def batch_of(number: int) -> Batch:
    """Return a batch of the backlog."""
    return Batch(f"{number}-0", f"{number}-9", 1)


async def claim_chunks(queues: ChatQueues) -> list[Chunk]:
    """Return the work that one writer claims."""
    async with asyncio.timeout(5):
        claimed = await queues.claim()
    return [queues.cut(queue) for queue in claimed]


async def test_claim_serves_other_chats_between_chunks_of_a_busy_chat() -> None:
    """A chat with 10,000 entries delays one that comes later by one chunk."""
    queues = ChatQueues(1, 2**30)
    queues.add(batch_of(1), piece_of("busy", 1, 10_000))
    (busy,) = await claim_chunks(queues)
    queues.add(batch_of(2), piece_of("other", 1, 1))
    queues.requeue(busy.queue)

    (other,) = await claim_chunks(queues)

    assert len(busy.piece.writes) == CHUNK_MAX
    assert other.piece.chat == "other"


async def test_claim_prefers_chats_with_awaited_sends_without_starvation() -> None:
    """The chat with a waiting sender is first; the other chats are served too."""
    queues = ChatQueues(1, 2**30)
    for number in range(10):
        queues.add(batch_of(number), piece_of(f"c{number}", 1, 3 * CHUNK_MAX))
    queues.add(batch_of(11), piece_of("urgent", 1, 20 * CHUNK_MAX, is_awaited=True))

    served = []
    for _ in range(20):
        (chunk,) = await claim_chunks(queues)
        served.append(str(chunk.piece.chat))
        queues.requeue(chunk.queue)

    assert served[0] == "urgent"
    assert 3 <= sum(chat != "urgent" for chat in served) <= 8


async def test_claim_joins_small_chats_into_one_write() -> None:
    """Forty chats with one message each need two writes, not forty."""
    queues = ChatQueues(8, 2**30)
    for number in range(40):
        queues.add(batch_of(1), piece_of(f"c{number}", 1, 1))

    assert [len(await claim_chunks(queues)) for _ in range(2)] == [WRITE_MAX, 40 - WRITE_MAX]


async def test_claim_while_held_waits_until_released() -> None:
    """A restarted worker writes nothing before it has read the work of its predecessor."""
    queues = ChatQueues(1, 2**30)
    queues.is_held = True
    queues.add(batch_of(1), piece_of("c", 1, 1))
    claiming = asyncio.create_task(queues.claim())
    await asyncio.sleep(0)
    assert not claiming.done()

    queues.release()

    assert [queue.chat for queue in await claiming] == ["c"]


async def test_cut_returns_marks_with_the_entries_and_completes_batches() -> None:
    """A batch is complete for a chat when its last entry is cut."""
    queues = ChatQueues(1, 2**30)
    first, second = batch_of(1), batch_of(2)
    queues.add(first, piece_of("c", 1, CHUNK_MAX + 1))
    marked = piece_of("c", CHUNK_MAX + 2, 1)
    marked.marks["bob"] = MarkUpdate("c", "bob", 5, 5)  # type: ignore[index]  # ids are plain strings here
    queues.add(second, marked)

    (one,) = await claim_chunks(queues)
    queues.requeue(one.queue)
    (two,) = await claim_chunks(queues)

    assert (one.batches, two.batches) == ([], [first, second])
    assert list(two.piece.marks) == ["bob"]
    assert two.source is first


async def test_queues_above_their_byte_limit_keep_positions_only() -> None:
    """Entries that do not fit in memory are read again later."""
    queues = ChatQueues(1, bytes_max=5_000)
    for number in range(100):
        queues.add(batch_of(number), piece_of("c", 1 + 10 * number, 10))
    assert queues.bytes < 20_000
    seqs_read: list[int] = []

    while len(seqs_read) < 1_000:
        (queue,) = await queues.claim()
        for item in queues.list_parked(queue):
            assert item.writes is None
            queues.load(item, piece_of("c", int(item.batch.first[:-2]) * 10 + 1, 10).writes)
        seqs_read += [work.committed.seq for work in queues.cut(queue).piece.writes]
        queues.requeue(queue)

    assert seqs_read == list(range(1, 1_001))
    assert queues.bytes == 0


async def test_full_queues_have_room_again_when_no_chat_waits() -> None:
    """The reader waits for writers; if they have taken all chats, it may add others."""
    queues, batch = ChatQueues(1, bytes_max=5_000), batch_of(1)
    for chat in ("a", "b"):
        queues.add(batch, piece_of(chat, 1, 2 * CHUNK_MAX))
    assert queues.is_full

    await claim_chunks(queues)
    assert queues.is_full
    assert not queues.room.is_set()
    await claim_chunks(queues)

    assert queues.bytes > 5_000
    assert not queues.is_full
    assert queues.room.is_set()


def test_add_of_a_batch_keeps_all_pieces_or_none() -> None:
    """A batch that was added while there was room is not read again."""
    queues = ChatQueues(1, bytes_max=5_000)
    batch, following = batch_of(1), batch_of(2)

    kept = [queues.add(batch, piece_of(chat, 1, 5)) for chat in "abc"]
    kept += [queues.add(following, piece_of(chat, 6, 5)) for chat in "abc"]

    assert kept == [True] * 3 + [False] * 3


@pytest.mark.parametrize("bytes_max", [0, 2**30])
@settings(max_examples=40)
@given(
    added=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 26, 130])), max_size=8)
)
def test_queues_return_each_entry_once_in_chat_order(
    bytes_max: int, added: list[tuple[str, int]]
) -> None:
    """No entry is skipped or repeated, and no chat has two writers."""
    found: dict[str, list[int]] = {}
    tops: Counter[str] = Counter()
    batches: list[tuple[Batch, Piece]] = []

    async def work() -> None:
        queues = ChatQueues(3, bytes_max)
        for number, (chat, count) in enumerate(added):
            batch = batch_of(number)
            batches.append((batch, piece_of(chat, tops[chat] + 1, count)))
            queues.add(batch, piece_of(chat, tops[chat] + 1, count))
            tops[chat] += count
        open_queues: list[ChatQueue] = []
        while open_queues or queues._queues:
            if queues._ordinary or queues._awaited:
                claimed = await queues.claim()
                assert not {id(queue) for queue in claimed} & {id(each) for each in open_queues}
                for queue in claimed:
                    for item in queues.list_parked(queue):
                        piece = next(p for batch, p in batches if batch is item.batch)
                        queues.load(item, piece.writes)
                    chunk = queues.cut(queue)
                    seqs = [int(work.committed.seq) for work in chunk.piece.writes]
                    found.setdefault(str(queue.chat), []).extend(seqs)
                    for batch in chunk.batches:
                        batch.left -= 1
                open_queues += claimed
            queues.requeue(open_queues.pop(0))
        assert queues.bytes == 0

    asyncio.run(work())

    assert {chat: seqs for chat, seqs in found.items() if seqs} == {
        chat: list(range(1, top + 1)) for chat, top in tops.items() if top
    }
    assert all(batch.left == 1 for batch, _ in batches)
