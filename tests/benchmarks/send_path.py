"""CPU of the gateway's code for one message, from the bytes of the `send` to those of the push.

All classes from the connection to the script call are real. Sockets, the event loop and Redis are
minimal fakes (`tests.support.send_path`). Each tick receives 1, 4 or 16 messages of as
many direct chats, whose two users are on this gateway. The result is the minimum of five rounds.

    python -m tests.benchmarks.send_path [--ticks 2000] [--profile] [--out F.json]
    CHATSERVER_PURE_PYTHON=1 python -m tests.benchmarks.send_path
"""

from __future__ import annotations

import cProfile
import pstats
import time
from typing import Any

import click

from tests.benchmarks.support.harness import Bench, Figures, benchmark, disable_garbage_collection
from tests.support.send_path import World, mask

TICK_SIZES = (1, 4, 16)
ROUNDS = 5
BODY = b"x" * 100


def make_ticks(world: World, round_: int, count: int) -> list[tuple[list[bytes], list[Any]]]:
    """Return the frames of the first device of each pair, and the replies of the commit."""
    ticks = []
    for tick in range(count):
        frames: list[bytes] = []
        reply: list[Any] = []
        for pair in world.pairs:
            text = b'{"type":"send","id":%d,"chat":"%b","ref":"%08d%08d","body":"%b"}' % (
                tick, pair.chat.encode(), round_, tick, BODY,
            )  # fmt: skip
            frames.append(mask(text))
            seq, ts = pair.place()
            reply += [1, 1, seq, ts, b"0-%d" % seq, b"0-%d" % seq, 0]
        ticks.append((frames, reply))
    return ticks


def run_ticks(world: World, ticks: list[tuple[list[bytes], list[Any]]]) -> None:
    senders = [pair.devices[0].connection for pair in world.pairs]
    for frames, reply in ticks:
        for sender, data in zip(senders, frames, strict=True):
            sender.data_received(data)
        world.loop.run()
        ((on_reply, _),) = world.pop_calls()
        on_reply(reply)
        world.loop.run()


def measure(bench: Bench, pairs: int, ticks: int, *, is_profiled: bool) -> float:
    """Return the µs of CPU per message."""
    world = World(pairs)
    profiler = cProfile.Profile()
    rounds = []
    with disable_garbage_collection():
        for round_ in range(ROUNDS):
            made = make_ticks(world, round_, ticks)
            begin = time.process_time()
            if is_profiled and round_ == ROUNDS - 1:
                profiler.enable()
            run_ticks(world, made)
            profiler.disable()
            rounds.append((time.process_time() - begin) * 1e6 / (ticks * pairs))
    sent = ROUNDS * ticks
    for pair in world.pairs:
        ack, event = (device.transport.pop_written() for device in pair.devices)
        acked, pushed = ack.count(b'"type":"ack"'), event.count(b'"type":"event"')
        if (acked, pushed) != (sent, sent):
            bench.findings.add("lost", f"{acked} acks and {pushed} pushes of {sent} messages")
    world.close()
    if is_profiled:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(35)
    return round(min(rounds), 1)


@benchmark(
    click.option("--ticks", default=2000, show_default=True),
    click.option("--profile", is_flag=True, help="Also print where the time is spent."),
)
def main(bench: Bench, ticks: int, profile: bool) -> Figures:
    return {
        f"µs per message, {count} in a tick": measure(
            bench, count, ticks // count + 50, is_profiled=profile
        )
        for count in TICK_SIZES
    }


if __name__ == "__main__":
    main()
