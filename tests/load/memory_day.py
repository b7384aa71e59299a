"""Memory that one hostile user can occupy in Redis in a day: `python -m tests.load.memory_day`.

Each way of spending is driven against a real Redis until it was charged a day's budget: the burst
and 86,400 seconds of refill, as if the bucket's clock had been advanced. Messages are persisted at
once (DynamoDB is healthy), so the backlog is empty at the end. Prints, for each way, how many
requests that is and how much more memory Redis uses; it must be less than what was charged.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from chatserver import config
from chatserver.dev.servers import Server, redis_launch
from chatserver.domain.ids import ChatId, Ref, UserId, derived_chat_id, new_id
from chatserver.domain.messages import format_name, generation_phase, reference_key
from chatserver.hot.answers import Answer, Answers
from chatserver.hot.client import open_hot
from chatserver.protocol import codec, frames
from chatserver.protocol.memory_costs import ANSWER_BYTES, cost_of, cost_of_send
from tests.integration.hot_support import EPOCH, GATE, Scripts, Sending, patient
from tests.support.servers import free_port, redis_client, redis_url_of

DAY_S = 86_400
DAY_BYTES_MAX = 20_000_000
HOSTILE = UserId("h" * 64)  # the longest id there is
OTHERS = [UserId(f"{n:0>8}{'o' * 24}") for n in range(255)]
LONG = "x" * config.BODY_BYTES_MAX
_size_of = msgspec.json.encode


def day_budget(limits: config.Limits) -> int:
    """Return how many bytes a user may be charged in a day."""
    return int(limits.memory_burst_bytes + limits.memory_bytes_per_s * DAY_S)


def used_bytes(scripts: Scripts) -> int:
    """Return the memory that Redis uses."""
    return int(scripts.redis.info("memory")["used_memory"])


def new_chat(scripts: Scripts, members: int = 2) -> tuple[ChatId, int]:
    """Create a chat as a user does; return its id and what was charged."""
    chat = derived_chat_id(HOSTILE, Ref(new_id()))
    users = OTHERS[: members - 1]
    scripts.open_chat(HOSTILE, *users, chat=chat)
    scripts.redis.zadd(scripts.keys.idle(0), {chat: 1_800_000_000})
    for user in (HOSTILE, *users):
        scripts.redis.hset(scripts.keys.box(user), f"c:{chat}", "1")
        seq = scripts.redis.hincrby(scripts.keys.seqs(0), user, 1)
        inbox = scripts.keys.inbox(user)
        scripts.redis.xadd(inbox, {chat: "1"}, id=f"{seq}-0", maxlen=1000, approximate=False)
    frame = frames.CreateChat(1, new_id(), list(users))
    return chat, cost_of(frame, len(_size_of(frame)))


def say(scripts: Scripts, chat: ChatId, body: str, count: int = 1) -> int:
    """Send messages with a reference of full length each; return what was charged."""
    batch, charged = [], 0
    for _ in range(count):
        ref = new_id() + "r" * 38
        frame = frames.Send(1, chat, ref, body)
        charged += cost_of_send(frame, len(_size_of(frame)))
        tail = codec.encode_message_tail(chat, new_id(), HOSTILE, ref, "text", body, None)
        batch.append(
            Sending(HOSTILE, ref, chat, (HOSTILE, OTHERS[0]), GATE, mid=new_id(),
                    digest="0123abcd", tail=tail.decode())
        )  # fmt: skip
    scripts.accept(*batch)
    scripts.redis.delete(scripts.keys.backlog(0), scripts.keys.checkpoint(0))
    return charged


def react(scripts: Scripts, chat: ChatId, frame: frames.React) -> None:
    """Commit a reaction."""
    keys = scripts.keys
    mid, kind = new_id(), "reaction"
    reply = scripts.run(
        "amend",
        {
            "chat": keys.chat(chat),
            "members": keys.members(chat),
            "log": keys.log(chat),
            "refs_even": keys.refs_even(chat),
            "over": keys.over(chat),
            "revs": keys.revs(chat),
            "backlog": keys.backlog(0),
            "checkpoint": keys.checkpoint(0),
            "undelivered": keys.undelivered(0),
            "asides": keys.asides(chat),
            "refs_odd": keys.refs_odd(chat),
        },
        {
            "epoch": EPOCH,
            "gateway": "gw-here",
            "ref_ttl_s": DAY_S,
            "backlog_max": 1000,
            "reactions_max": 3,
            "chat_id": chat,
            "sender": HOSTILE,
            "name": format_name(mid, "0123abcd"),
            "kind": kind,
            "target": frame.seq,
            "body": frame.emoji,
            "tail": codec.encode_entry_tail(
                chat, mid, HOSTILE, frame.ref, kind, frame.emoji, frame.seq
            ),
            "base": b"",
            "asked": 0,
            "author": "",
            "ref": reference_key(HOSTILE, frame.ref),
            "phase": generation_phase(chat),
        },
    )
    assert reply[0] == 1, reply
    scripts.redis.delete(keys.backlog(0), keys.checkpoint(0))


def spend_on_short_messages(scripts: Scripts, budget: int) -> tuple[int, int]:
    """In chats of a thousand messages, so that no log is ever trimmed."""
    charged, count = 0, 0
    while charged < budget:
        chat, cost = new_chat(scripts)
        charged += cost
        for _ in range(10):
            charged += say(scripts, chat, "hello", 100)
            count += 100
            if charged >= budget:
                break
    return count, charged


def spend_on_long_messages(scripts: Scripts, budget: int) -> tuple[int, int]:
    """As long as allowed."""
    chat, charged = new_chat(scripts)
    count = 0
    while charged < budget:
        charged += say(scripts, chat, LONG)
        count += 1
    return count, charged


def spend_on_reactions(scripts: Scripts, budget: int) -> tuple[int, int]:
    """One to each of the user's own messages."""
    chat, charged = new_chat(scripts)
    count = 0
    while charged < budget:
        charged += say(scripts, chat, "hello")
        count += 1
        frame = frames.React(1, chat, 2 * count - 1, new_id() + "r" * 38, "x" * 16)
        charged += cost_of(frame, len(_size_of(frame)))
        react(scripts, chat, frame)
    return count, charged


def spend_on_direct_chats(scripts: Scripts, budget: int) -> tuple[int, int]:
    """Each with a message in it."""
    charged, count = 0, 0
    while charged < budget:
        chat, cost = new_chat(scripts)
        charged += cost + say(scripts, chat, "hello")
        count += 1
    return count, charged


def spend_on_groups(scripts: Scripts, budget: int) -> tuple[int, int]:
    """Of 256 members."""
    charged, count = 0, 0
    while charged < budget:
        charged += new_chat(scripts, 256)[1]
        count += 1
    return count, charged


def _url_of(scripts: Scripts) -> str:
    given = scripts.redis.connection_pool.connection_kwargs
    return f"redis://{given['host']}:{given['port']}/{given.get('db', 0)}"


def spend_on_answers(scripts: Scripts, budget: int) -> tuple[int, int]:
    """Memory left by HTTP requests with an idempotency key."""
    count = budget // ANSWER_BYTES + 1

    async def put_all() -> None:
        async with open_hot(patient(_url_of(scripts))) as hot:
            answers = Answers(hot)
            for _ in range(count):
                chat = derived_chat_id(HOSTILE, Ref(new_id()))
                ack = frames.Ack(0, new_id(), new_id(), 1, 1_795_000_000_000_000, False, "hot")
                answer = Answer(new_id()[:22], 201, "application/json", _size_of(ack))
                await answers.put(chat[:22], answer, HOSTILE)

    asyncio.run(put_all())
    return count, count * ANSWER_BYTES


WAYS: dict[str, Callable[[Scripts, int], tuple[int, int]]] = {
    "short messages": spend_on_short_messages,
    "long messages": spend_on_long_messages,
    "messages and reactions": spend_on_reactions,
    "direct chats": spend_on_direct_chats,
    "groups of 256": spend_on_groups,
    "HTTP answers": spend_on_answers,
}


def measure(scripts: Scripts, way: str, budget: int) -> tuple[int, int, int]:
    """Spend a budget; return how many requests it was, what was charged, and what Redis took."""
    WAYS[way](scripts, 1)  # Redis knows the scripts
    scripts.redis.flushall()
    before = used_bytes(scripts)
    count, charged = WAYS[way](scripts, budget)
    return count, charged, used_bytes(scripts) - before


def main() -> int:
    """Measure every way; 1 if one leaves more than 20 MB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=day_budget(config.Limits()))
    budget = parser.parse_args().budget
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(redis_launch(Path(folder), free_port()))
        server.start()
        try:
            scripts = Scripts(redis_client(redis_url_of(server)))
            sys.stdout.write(f"{'way':24}{'requests':>10}{'charged MB':>12}{'Redis MB':>10}\n")
            for way in WAYS:
                count, charged, taken = measure(scripts, way, budget)
                worst = max(worst, taken)
                row = f"{way:24}{count:>10}{charged / 1e6:>12.1f}{taken / 1e6:>10.1f}\n"
                sys.stdout.write(row)
                sys.stdout.flush()
        finally:
            server.stop()
    return 0 if worst <= DAY_BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
