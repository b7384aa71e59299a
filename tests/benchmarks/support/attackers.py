"""The attackers of `tests.benchmarks.attack_storm`, as a separate process.

Standard input has one line of JSON (`Targets`); a line on standard output says that everything is
prepared. The next line on standard input begins the storm, and end of file stops it. The last line
of the output has the counts of requests and responses.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import io
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
from PIL import Image

from chatserver.cpu_priority import lower_process_priority
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
    flooders: dict[str, str]  # tokens of new accounts that fill Redis


IMAGE_ATTACKERS = 2
FILE_BYTES = 200_000
FLOOD_NETWORKS = 4
FLOOD_BODY = "abcdefghi " * 400
FLOOD_IN_FLIGHT = 8
SEARCHED_MESSAGES = 20
SEARCHED_BODY = "a b " * 999 + "a b"
# As many phrases and words as a query may have; all these messages have them as often as possible.
SEARCH_QUERY = " ".join(
    '"' + " ".join(("a b " * words).split()[:words]) + '"' for words in range(1, 11)
)
SEARCHES = 2  # at once, by one user
Counts = collections.Counter[str]


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
    """A hostile user who completes uploads of progressive JPEGs, and fills the bucket."""

    def __init__(self, target: Targets, user: str) -> None:
        self._base = f"http://127.0.0.1:{target.api}"
        self._target = target
        self._session = session_from("127.0.0.1", target.tokens[user])
        self._files: list[str] = []
        self._chat = ""

    async def _post(self, path: str, body: Any) -> tuple[int, Any]:
        async with self._session.post(self._base + path, json=body) as answer:
            return answer.status, await answer.json()

    async def _upload(self, content: bytes, type_: str) -> tuple[int, str]:
        """Upload a file; return the status, and the file's id if it is 201."""
        digest = hashlib.sha256(content).hexdigest()
        upload = {"name": "a.jpg", "size": len(content), "type": type_, "sha256": digest}
        status, form = await self._post(f"/v1/chats/{self._chat}/attachments", upload)
        if status != 201:
            return status, ""
        data = aiohttp.FormData(form["fields"])
        data.add_field("file", content, filename="a.jpg")
        async with aiohttp.ClientSession() as s3, s3.post(form["url"], data=data) as answer:
            assert answer.status == 204, await answer.text()
        return status, form["id"]

    async def prepare(self, image: bytes) -> None:
        """Upload the images."""
        _, chat = await self._post("/v1/chats", {"members": self._target.members[:1]})
        self._chat = chat["chat"]
        for _ in range(self._target.images):
            status, file = await self._upload(image, "image/jpeg")
            assert status == 201, status
            self._files.append(file)

    async def store_files(self, counts: Counts) -> None:
        """Upload and send files in a loop."""
        for number in itertools.count():
            content = number.to_bytes(8) + bytes(FILE_BYTES - 8)
            counts["file sent"] += 1
            status, file = await self._upload(content, "application/octet-stream")
            if status == 201:
                await self._post(f"/v1/attachments/{file}/complete", {})
                message = {"body": "", "attachments": [file], "ref": f"file-{number}"}
                status, _ = await self._post(f"/v1/chats/{self._chat}/messages", message)
            counts[f"file {status}"] += 1
            if status != 201:
                await asyncio.sleep(PAUSE_S)

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


async def fill_redis(target: Targets, number: int, counts: Counts) -> None:
    """As a new account, send long messages to the next account, without waiting for acks."""
    users = list(target.flooders)
    user, peer = users[number], users[(number + 1) % len(users)]
    address = f"127.200.{number % FLOOD_NETWORKS}.{1 + number % 200}"
    refs = itertools.count()
    url = f"http://127.0.0.1:{target.gateway}/"
    while True:
        try:
            async with (
                session_from(address) as session,
                session.ws_connect(url, protocols=["chat.v1"], max_msg_size=0) as socket,
            ):
                hello = {"type": "hello", "v": 1, "token": target.flooders[user], "device": "f"}
                await socket.send_json(hello)
                await socket.send_json({"type": "open_direct", "id": 1, "user": peer})
                chat = ""
                async for message in socket:
                    frame = json.loads(message.data)
                    answered = frame.get("id") == 1 or frame["type"] in ("ack", "error")
                    if not answered:
                        continue
                    counts[f"flood {frame.get('code', frame['type'])}"] += 1
                    if frame.get("id") == 1 and frame["type"] == "ok":
                        chat = frame["chat"]["chat"]
                    if frame["type"] == "error":
                        await asyncio.sleep(PAUSE_S)
                    for _ in range(FLOOD_IN_FLIGHT if frame.get("id") == 1 else 1):
                        send = {"type": "open_direct", "id": 1, "user": peer}
                        if chat:
                            ref = f"{user}-{next(refs)}"
                            send = {"type": "send", "id": 2, "chat": chat, "ref": ref}
                            send["body"] = FLOOD_BODY
                        await socket.send_json(send)
                        counts["flood sent"] += 1
                        if not chat:
                            break
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError):
            counts["flood ended"] += 1
            await asyncio.sleep(PAUSE_S)


class SearchAttacker:
    """A user whose messages and searches cost as much CPU as possible."""

    def __init__(self, target: Targets, user: str) -> None:
        self._target = target
        self._user = user
        self._session = session_from("127.3.3.3", target.tokens[user])

    async def prepare(self) -> None:
        """Send the messages to search."""
        token_of = self._target.tokens.__getitem__
        async with RawChat(self._user, self._target.gateway, token_of) as chat:
            opened = await chat.request("open_direct", user=self._target.members[0])
            for _ in range(SEARCHED_MESSAGES):
                await chat.send(opened["chat"]["chat"], SEARCHED_BODY)

    async def search_by_http(self, counts: Counts) -> None:
        """Search in a loop."""
        url = f"http://127.0.0.1:{self._target.api}/v1/search"
        while True:
            counts["search sent"] += 1
            try:
                params = {"q": SEARCH_QUERY, "limit": "50"}
                async with self._session.get(url, params=params) as answer:
                    counts[f"search {answer.status}"] += 1
                    await answer.read()
            except (aiohttp.ClientError, TimeoutError):
                counts["search failed"] += 1
            await asyncio.sleep(PAUSE_S)

    async def search_by_frame(self, counts: Counts) -> None:
        """Search in a loop."""
        token_of = self._target.tokens.__getitem__
        while True:
            try:
                async with RawChat(self._user, self._target.gateway, token_of, device="s") as chat:
                    while True:
                        counts["search sent"] += 1
                        try:
                            await chat.request("search", q=SEARCH_QUERY, limit=50)
                            counts["search ok"] += 1
                        except Failed as refused:
                            counts[f"search {refused.code}"] += 1
                        await asyncio.sleep(PAUSE_S)
            except (Ended, TimeoutError, OSError):
                counts["search ended"] += 1

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
    searcher = SearchAttacker(target, users[IMAGE_ATTACKERS])
    await asyncio.gather(
        searcher.prepare(), *(attacker.prepare(image) for attacker in image_attackers)
    )
    sys.stdout.write("prepared\n")
    sys.stdout.flush()
    await read_line()
    work = [
        *(hold_half_open(target, number, counts) for number in range(target.half_open)),
        *(guess_passwords(target, number, counts) for number in range(GUESSES)),
        *(create_chats(target, user, counts) for user in users[:CREATES]),
        *(attacker.run(counts) for attacker in image_attackers),
        *(attacker.store_files(counts) for attacker in image_attackers),
        *(fill_redis(target, number, counts) for number in range(len(target.flooders))),
        *(searcher.search_by_http(counts) for _ in range(SEARCHES)),
        searcher.search_by_frame(counts),
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
    await searcher.close()
    return counts


async def main() -> None:
    """Run the attack described on standard input."""
    lower_process_priority(NICE)  # real attackers do not share the CPU of the servers
    reader = asyncio.StreamReader(limit=2**24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    counts = await attack(reader.readline)
    sys.stdout.write(json.dumps(dict(sorted(counts.items()))) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
