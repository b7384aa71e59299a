"""The attackers of `tests.benchmarks.attack_storm`, as a separate process.

Standard input has one line of JSON (`Targets`); a line on standard output says that everything is
prepared. The next line on standard input begins the storm, and end of file stops it. The last line
of the output has the counts of requests and responses.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import io
import itertools
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from PIL import Image

from tests.support.rawchat import Failed, RawChat
from tests.support.wire import Ended

NICE = 5
GUESSES = 110
CREATES = 32
SCANS = 20  # the maximum that is decoded for any number of pixels
PAUSE_S = 0.2  # between a refusal and the next attempt
HALF_REQUEST = b"POST /v1/auth/login HTTP/1.1\r\nHost: chat\r\n"


class Targets(msgspec.Struct):
    """Target and attackers of a storm."""

    api: int
    gateway: int
    victim: str
    half_open: int
    tokens: dict[str, str]  # of the hostile users
    members: list[str]
    images: int  # for each of the first `IMAGE_ATTACKERS` hostile users


IMAGE_ATTACKERS = 2
Counts = collections.Counter[str]


def lower_priority() -> None:
    """Lower the priority, because real attackers do not share the CPU of the servers."""
    os.nice(NICE)
    # With autogroup, Linux shares the CPU among sessions, and nice works within a session only.
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(NICE))


def make_progressive_jpeg() -> bytes:
    """Return an image whose decoder processes all pixels `SCANS` times."""
    out = io.BytesIO()
    Image.new("L", (5000, 5000), 128).save(out, "JPEG", progressive=True)
    head, *scans = out.getvalue().split(b"\xff\xda")
    last = scans[-1].removesuffix(b"\xff\xd9")
    repeated = [last] * (SCANS - len(scans) + 1)
    return b"\xff\xda".join([head, *scans[:-1], *repeated]) + b"\xff\xd9"


def session_from(address: str, token: str = "") -> aiohttp.ClientSession:
    """Return an HTTP client whose connections come from a loopback address."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(local_addr=(address, 0)),
        timeout=aiohttp.ClientTimeout(total=60),
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )


async def hold_half_open(target: Targets, number: int, counts: Counts) -> None:
    """Keep one request half open; open a new one when the server closes it."""
    # A third of the requests go to the gateway. All come from 30 addresses.
    port = target.gateway if number % 3 == 0 else target.api
    address = f"127.2.{number % 30}.1"
    while True:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(address, 0)
            )
        except OSError:
            counts["half-open refused"] += 1
            await asyncio.sleep(PAUSE_S)
            continue
        counts["half-open"] += 1
        try:
            writer.write(HALF_REQUEST)
            await reader.read()
        except OSError:
            pass
        finally:
            writer.transport.abort()
        await asyncio.sleep(PAUSE_S)


async def guess_passwords(target: Targets, number: int, counts: Counts) -> None:
    """Guess passwords of an account in a loop, from a separate network."""
    body = {"user": target.victim, "password": "wrong password"}
    url = f"http://127.0.0.1:{target.api}/v1/auth/login"
    async with session_from(f"127.1.{number}.1") as session:
        while True:
            counts["guess sent"] += 1
            try:
                async with session.post(url, json=body) as answer:
                    counts[f"guess {answer.status}"] += 1
                    await answer.read()
            except (aiohttp.ClientError, TimeoutError):
                counts["guess failed"] += 1
            await asyncio.sleep(PAUSE_S)


async def create_chats(target: Targets, user: str, counts: Counts) -> None:
    """Create groups of 256 members in a loop."""
    refs = itertools.count()
    while True:
        try:
            async with RawChat(user, target.gateway, lambda user: target.tokens[user]) as chat:
                while True:
                    try:
                        ref = f"storm-{next(refs)}"
                        counts["create_chat sent"] += 1
                        await chat.request("create_chat", ref=ref, members=target.members)
                        counts["create_chat ok"] += 1
                    except Failed as refused:
                        counts[f"create_chat {refused.code}"] += 1
                        await asyncio.sleep(PAUSE_S)
        except (Ended, TimeoutError, OSError):
            counts["create_chat ended"] += 1


class ImageAttacker:
    """A hostile user who uploads progressive JPEGs, and completes them during the storm."""

    def __init__(self, target: Targets, user: str) -> None:
        self._base = f"http://127.0.0.1:{target.api}"
        self._target = target
        self._session = session_from("127.0.0.1", target.tokens[user])
        self._files: list[str] = []

    async def _post(self, path: str, body: Any) -> tuple[int, Any]:
        async with self._session.post(self._base + path, json=body) as answer:
            return answer.status, await answer.json()

    async def prepare(self, image: bytes) -> None:
        """Upload the images."""
        _, chat = await self._post("/v1/chats", {"members": self._target.members[:1]})
        digest = hashlib.sha256(image).hexdigest()
        upload = {"name": "a.jpg", "size": len(image), "type": "image/jpeg", "sha256": digest}
        for _ in range(self._target.images):
            status, form = await self._post(f"/v1/chats/{chat['chat']}/attachments", upload)
            assert status == 201, form
            data = aiohttp.FormData(form["fields"])
            data.add_field("file", image, filename="a.jpg")
            async with aiohttp.ClientSession() as s3, s3.post(form["url"], data=data) as answer:
                assert answer.status == 204, await answer.text()
            self._files.append(form["id"])

    async def run(self, counts: Counts) -> None:
        """Request the thumbnails of all images at once."""

        async def complete(file: str) -> None:
            counts["image sent"] += 1
            status, _ = await self._post(f"/v1/attachments/{file}/complete", {})
            counts[f"image {status}"] += 1

        await asyncio.gather(*map(complete, self._files))

    async def close(self) -> None:
        """Close the HTTP session."""
        await self._session.close()


async def attack(read_line: Callable[[], Awaitable[bytes]]) -> Counts:
    """Prepare the attack, wait for a line on standard input, and attack until end of file."""
    target = msgspec.json.decode(await read_line(), type=Targets)
    counts: Counts = collections.Counter()
    users = list(target.tokens)
    image_attackers = [ImageAttacker(target, user) for user in users[:IMAGE_ATTACKERS]]
    image = make_progressive_jpeg()
    await asyncio.gather(*(attacker.prepare(image) for attacker in image_attackers))
    sys.stdout.write("prepared\n")
    sys.stdout.flush()
    await read_line()
    work = [
        *(hold_half_open(target, number, counts) for number in range(target.half_open)),
        *(guess_passwords(target, number, counts) for number in range(GUESSES)),
        *(create_chats(target, user, counts) for user in users[:CREATES]),
        *(attacker.run(counts) for attacker in image_attackers),
    ]
    tasks = [asyncio.create_task(each) for each in work]
    while await read_line():
        pass
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            counts[f"attacker failed: {end!r}"[:100]] += 1
    for attacker in image_attackers:
        await attacker.close()
    return counts


async def main() -> None:
    """Run the attack described on standard input."""
    lower_priority()
    reader = asyncio.StreamReader(limit=2**24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    counts = await attack(reader.readline)
    sys.stdout.write(json.dumps(dict(sorted(counts.items()))) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
