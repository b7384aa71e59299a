"""The web client with a long chat: frames, nodes, memory and keystrokes in Chromium.

    python -m tests.benchmarks.web_client [--messages 100000] [--outage 5] [--out F.json]

A direct chat gets texts of 1 to 60 words, some of them with Markdown. A user opens it, scrolls to
its first message and back to the last one as fast as the page draws frames (2,700 pixels each,
three screens), and writes 100 letters before and after. *Frames* are the times between two
`requestAnimationFrame`, a *keystroke* is the synchronous work for one letter, with layout. The size
of the JavaScript heap is measured after a garbage collection. Then the page is reloaded offline,
and the gateway is killed a few times and started again after some seconds: *usable* is the time
until a message, sent when the gateway is ready, is committed.

Build the client first (`make run` does). Gateway, API, workers, Redis, a DynamoDB API server and
Chromium, without a window and a GPU, run on the same machine.
"""

from __future__ import annotations

import asyncio
import random
import time

import click
from playwright.async_api import Page, async_playwright, expect

from chatserver.config import Redis, Settings
from chatserver.container.storage import open_storage_container
from chatserver.dev.binaries import find_binary
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.protocol import frames
from chatserver.warm.messages.messages import PersistItem
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.benchmarks.support.measurements import summarize_ms
from tests.e2e.web.client_support import WORKER_READY, Visitor, open_visits
from tests.e2e.web.conversation_support import TYPE, scroll_to
from tests.e2e.web.stack_support import (
    CHROMIUM_ARGS,
    PATIENCE_MS,
    WebStack,
    open_web_stack,
)
from tests.support.stack import Stack

WORDS = ["the", "plan", "for", "tomorrow", "**really**", "works", "`code`", "again", "maybe", "ok"]
LETTERS = 100
STEP_PX = 2_700
GAP_TS = 500_000  # microseconds between two messages
PUT, PUTS_AT_ONCE = 500, 8


def text_of(number: int) -> str:
    """Return the text of a message; it depends only on the number."""
    chance = random.Random(number)
    words = chance.choices(WORDS, k=chance.randint(1, 60 if chance.random() < 0.2 else 12))
    return f"{number} {' '.join(words)}"


async def write_messages(stack: Stack, reader: UserId, writer: UserId, count: int) -> None:
    """Write the messages of a direct chat to DynamoDB.

    Redis loads the newest ones when it is opened.
    """
    chat = direct_chat_id(reader, writer)
    start_ts = int(time.time() * 1e6) - (count + 120) * GAP_TS

    def item_of(seq: int) -> PersistItem:
        names = (f"M{seq}", writer, f"r{seq}", "text", text_of(seq))
        message = frames.Message(seq, start_ts + seq * GAP_TS, chat, *names)
        return PersistItem(message, reader)

    settings = Settings(redis=Redis(url=stack.redis_url), warm=stack.warm)
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:

        async def put(first: int) -> None:
            for start in range(first, count + 1, PUT * PUTS_AT_ONCE):
                seqs = range(start, min(start + PUT, count + 1))
                await container.messages.put_batch([item_of(seq) for seq in seqs], 120)

        await asyncio.gather(*(put(1 + index * PUT) for index in range(PUTS_AT_ONCE)))


async def type_letters(person: Visitor) -> Figures:
    """Type into the composer; return the times of keystrokes."""
    await person.field.focus()
    times: list[float] = await person.page.evaluate(TYPE, LETTERS)
    await person.field.fill("")
    return summarize_ms([each / 1000 for each in times])


async def measure_heap(page: Page) -> float:
    """Return the megabytes of live objects in the page."""
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    usage = await session.send("Runtime.getHeapUsage")
    await session.detach()
    return round(usage["usedSize"] / 1e6, 1)


async def measure_scroll(page: Page, end: int) -> Figures:
    """Scroll to a message; return the measurements."""
    started = time.perf_counter()
    found = await scroll_to(page, end, STEP_PX, wait_for_rows=False)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "frame": summarize_ms([each / 1000 for each in found["frames"]]),
        "nodes_max": found["nodes"],
        "heap_mb": await measure_heap(page),
    }


async def measure_offline_reload(person: Visitor, last: str) -> int:
    """Return the milliseconds from an offline reload until the last message is visible."""
    await person.page.evaluate(WORKER_READY)
    await person.wait_until_stored(last)
    await person.context.set_offline(True)
    started = time.perf_counter()
    await person.page.reload(wait_until="commit")
    await expect(person.messages(last).last).to_be_visible()
    took_ms = round((time.perf_counter() - started) * 1000)
    await person.context.set_offline(False)
    return took_ms


async def send(person: Visitor, text: str) -> None:
    """Send a message and wait until it is committed."""
    await person.send(text)
    await expect(person.mark(text, "Sent")).to_be_visible()


async def measure_outages(web: WebStack, person: Visitor, outages_s: tuple[float, ...]) -> Figures:
    """Return the milliseconds from the start of the gateway until a message is committed."""
    await send(person, "before the outages")  # it is connected again
    times = {}
    for seconds in outages_s:
        web.kill_gateway()
        await expect(person.banner).to_be_visible()
        await asyncio.sleep(seconds)
        web.start_gateway()
        started = time.perf_counter()
        await send(person, f"after {seconds:g} s")
        times[f"{seconds:g} s"] = round((time.perf_counter() - started) * 1000)
    return times


@benchmark(
    click.option("--messages", default=100_000, show_default=True),
    click.option(
        "--outage",
        "outages_s",
        type=float,
        multiple=True,
        default=(1, 5, 10, 15, 20),
        show_default=True,
        help="Seconds; can be repeated.",
    ),
)
async def main(bench: Bench, messages: int, outages_s: tuple[float, ...]) -> Figures:
    expect.set_options(timeout=PATIENCE_MS)
    async with (
        open_web_stack(bench.folder, ["ann", "ben"]) as web,
        async_playwright() as playwright,
    ):
        await write_messages(web.stack, UserId("ann"), UserId("ben"), messages)
        async with web.stack.chat_of("ann") as reader:
            chat = (await reader.request("open_direct", user="ben"))["chat"]["chat"]
            await reader.request("mark", chat=chat, read=messages)
        chromium = str(find_binary("chromium"))
        browser = await playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        async with open_visits(web, browser) as visit:
            person = await visit("ann")
            started = time.perf_counter()
            await person.open_chat("ben")
            await expect(person.messages(f"{messages} ").last).to_be_in_viewport()
            result: Figures = {
                "messages": messages,
                "open_ms": round((time.perf_counter() - started) * 1000),
                "heap_mb": await measure_heap(person.page),
                "keystroke": await type_letters(person),
                "to_first": await measure_scroll(person.page, 1),
                "to_last": await measure_scroll(person.page, messages),
            }
            result["keystroke_after"] = await type_letters(person)
            result["offline_reload_ms"] = await measure_offline_reload(person, f"{messages} ")
            result["usable_after_outage_ms"] = await measure_outages(web, person, outages_s)
        await browser.close()
    return result


if __name__ == "__main__":
    main()
