"""Persist worker: the rate at which it empties a backlog, its CPU cost, and its memory.

    python -m tests.benchmarks.persist_worker [--messages 500000] [--encrypt] [--runs 3]
        [--out F.json]

A backlog of direct messages is written to a real Redis, in the format that gateways use. One worker
process then runs on a core of its own. The measurement starts when the worker gets the lease and
ends at its last checkpoint, so it does not include process startup. DynamoDB is a stub, so the
worker itself is the limit.
"""

from __future__ import annotations

import time

import click
import redis

from chatserver.domain.ids import UserId, direct_chat_id, new_id
from chatserver.encryption.key_file import new_line
from chatserver.hot.redis.keys import Keys
from chatserver.loadtest.machine import read_cpu_s, read_rss_bytes
from chatserver.protocol import codec, frames
from tests.benchmarks.support.harness import Bench, benchmark
from tests.benchmarks.support.measurements import SERVER_CORE, Figures, get_pid
from tests.benchmarks.support.pinned_stack import PinnedStack
from tests.support.servers.processes import redis_client

CHATS = 200
BODY = "x" * 90
IN_ENTRY = 64  # Messages per backlog entry: under load, a gateway commits about as many at once.
SAMPLE_S = 0.05
STUCK_S = 60.0
OWNER = "bench"  # The benchmark holds the lease under this name until the worker has started.


def fill_backlog(client: redis.Redis, keys: Keys, count: int) -> None:
    """Write a backlog in the format of `commit_messages.lua`, evenly over the chats."""
    pairs = [(UserId(f"a{n}"), UserId(f"b{n}")) for n in range(CHATS)]
    chats = [(direct_chat_id(*pair), *pair) for pair in pairs]
    now_us, done = int(time.time() * 1e6), 0
    pipe = client.pipeline(transaction=False)
    while done < count:
        fields: list[bytes] = [b"g", b"load"]
        for n in range(done, min(done + IN_ENTRY, count)):
            chat, sender, receiver = chats[n % CHATS]
            seq, ts = 1 + n // CHATS, now_us + n
            message = frames.Message(seq, ts, chat, new_id(), sender, f"load-{n}", "text", BODY)
            fields += [b"%d:%d" % (seq, ts), receiver.encode() + b"\n" + codec.encode_tail(message)]
        done = min(done + IN_ENTRY, count)
        pipe.execute_command("XADD", keys.backlog(0), "*", *fields)  # type: ignore[no-untyped-call]
        if len(pipe) >= 100:
            pipe.execute()
    pipe.execute()


def measure_worker(client: redis.Redis, backlog: str, pid: int, count: int) -> Figures:
    """Measure the worker's CPU time and memory until the backlog is empty."""
    started_at, cpu_before_s = time.monotonic(), read_cpu_s(pid)
    remaining, moved_at, resident = count, started_at, list[int]()
    while remaining > 0:
        assert time.monotonic() - moved_at < STUCK_S, "the worker makes no progress"
        time.sleep(SAMPLE_S)
        before, remaining = remaining, int(client.xlen(backlog)) * IN_ENTRY
        if remaining < before:
            moved_at = time.monotonic()
            resident.append(read_rss_bytes(pid))
    fifth = max(1, len(resident) // 5)
    return {
        "messages": count,
        "messages_per_second": round(count / (moved_at - started_at)),
        "cpu_us_per_message": round((read_cpu_s(pid) - cpu_before_s) * 1e6 / count, 1),
        "rss_mb_first_fifth": round(max(resident[:fifth]) / 2**20, 1),
        "rss_mb_last_fifth": round(max(resident[-fifth:]) / 2**20, 1),
    }


@benchmark(
    click.option("--messages", default=500_000, show_default=True, help="In the backlog."),
    click.option("--encrypt", is_flag=True, help="Encrypt bodies with a key file."),
    runs=3,
)
def main(bench: Bench, messages: int, encrypt: bool) -> Figures:
    pinned, keys, env = PinnedStack(bench, fsync="no", stub=[]), Keys(1), dict[str, str]()
    if encrypt:
        path = bench.folder / "keys"
        path.write_text(new_line())
        env = {"CHAT_ENCRYPTION_PROVIDER": "file", "CHAT_ENCRYPTION_KEY_FILE": str(path)}
    with redis_client(pinned.stack.redis_url) as client:
        fill_backlog(client, keys, messages)
        lease = keys.lease(0, "persist")
        client.hset(lease, mapping={"owner": OWNER, "token": 1, "until_ms": 2**52})
        worker = pinned.start_worker("persist", SERVER_CORE, **env)
        client.hset(lease, "owner", "")
        give_up_at = time.monotonic() + STUCK_S
        while client.hget(lease, "owner") == b"":
            assert time.monotonic() < give_up_at, "the worker has not acquired the lease"
            time.sleep(0.001)
        return measure_worker(client, keys.backlog(0), get_pid(worker), messages)


if __name__ == "__main__":
    main()
