"""The message cache of the SDK against real gateways, workers, Redis and DynamoDB."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
import redis.asyncio as redis

from chatserver.client import ChatClient, SqliteStore
from chatserver.errors import Conflict, Unavailable
from tests.integration.client.cache_support import (
    DEADLINE_S,
    add_user,
    client_of,
    consuming,
    offline_client,
    read_all,
    read_line,
    start_process,
    wait_until_shown,
)
from tests.support.deadlines import wait_for_exit
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.stack import NewName, Stack, start_async


async def test_client_opens_offline_with_its_chats_and_messages(
    stack: Stack, new_name: NewName, tmp_path: Path
) -> None:
    """Chats, changed messages and pages come from the cache; all other requests raise an error."""
    path, bob_name = tmp_path / "alice.db", await add_user(stack, new_name("bob"))
    alice = client_of(stack, new_name("alice"), SqliteStore(path))
    async with consuming(alice), consuming(client_of(stack, bob_name)) as bob:
        chat = (await alice.create_chat([bob_name], name="Trip")).id
        first = await alice.send(chat, "helo")
        await alice.edit(chat, first.seq, "hello")
        await bob.react(chat, first.seq, "👍")
        gone = await bob.send(chat, "oops")
        await bob.delete(chat, gone.seq)
        await bob.send(chat, "bye")
        await wait_until_shown(alice, chat, ["hello", "", "bye"])

    async with offline_client(stack, path) as client:
        assert not client.is_online
        (known,) = client.known_chats
        assert (known.id, known.name, known.unread) == (chat, "Trip", 1)
        assert set(known.members or {}) == {alice.user, bob_name}
        hello, oops, bye = client.messages(chat)
        assert (hello.body, hello.reactions) == ("hello", {bob_name: "👍"})
        assert (oops.body, oops.deleted, bye.body) == ("", True, "bye")
        page = await client.history(chat)
        assert (page.tier, page.has_more) == ("cache", False)
        assert [entry.body for entry in page.entries if entry.target is None][-3:] == [
            "hello",
            "",
            "bye",
        ]
        assert (await client.chats()).chats == [known]
        with pytest.raises(Unavailable, match="not cached"):
            await client.history("d-unknown")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_client_killed_while_receiving_has_every_message_once(
    stack: Stack, new_name: NewName, tmp_path: Path
) -> None:
    """After SIGKILL at several points, the next process has all messages, also offline."""
    path, bob_name = tmp_path / "bob.db", await add_user(stack, new_name("bob"))
    async with client_of(stack, new_name("alice")) as alice:
        chat = (await alice.open_direct(bob_name)).id
        sent = 0
        for round_ in range(4):
            process = await start_process(stack, bob_name, path)
            sends = [asyncio.create_task(alice.send(chat, str(n))) for n in range(sent, sent + 150)]
            sent += 150
            for _ in range(40 * round_ + 1):
                await read_line(process)
            process.kill()
            await wait_for_exit(process)
            await asyncio.gather(*sends)
        expected = await read_all(alice, chat)
        assert sorted(expected, key=int) == [str(n) for n in range(sent)]

        async with consuming(client_of(stack, bob_name, SqliteStore(path))) as bob:
            await eventually(
                lambda: [m.body for m in bob.messages(chat)][-1:] == expected[-1:],
                DEADLINE_S,
                "the newest message is received",
            )

    async with offline_client(stack, path) as client:
        assert await read_all(client, chat) == expected


@pytest.mark.parametrize("missed", [0, 60], ids=["inbox", "inbox trimmed"])
async def test_messages_deleted_while_the_client_was_offline_are_removed(
    breakable: Stack, new_name: NewName, tmp_path: Path, missed: int
) -> None:
    """Messages deleted for everyone or on another device disappear from the cache."""
    path, bob_name = tmp_path / "bob.db", await add_user(breakable, new_name("bob"))
    stack = breakable
    async with client_of(stack, new_name("alice")) as alice:
        direct = (await alice.open_direct(bob_name)).id
        group = (await alice.create_chat([bob_name], name="Quiet")).id
        async with consuming(client_of(stack, bob_name, SqliteStore(path))) as bob:
            for chat in (direct, group):
                for body in ("secret one", "secret two", "public"):
                    await alice.send(chat, body)
                await wait_until_shown(bob, chat, ["secret one", "secret two", "public"])

        async with client_of(stack, bob_name, device="other") as other:
            for chat in (direct, group):
                seqs = [
                    entry.seq
                    for entry in (await other.history(chat)).entries
                    if entry.body.startswith("secret")
                ]
                await alice.delete(chat, seqs[0])
                await other.delete(chat, seqs[1], scope="me")
        for number in range(missed):
            await alice.send(direct, str(number))
        texts = ["", "", "public"]

        async with consuming(client_of(stack, bob_name, SqliteStore(path))) as bob:
            await wait_until_shown(bob, direct, texts + [str(n) for n in range(missed)])
            await wait_until_shown(bob, group, texts)

    async with offline_client(stack, path) as client:
        assert await read_all(client, direct) == texts + [str(n) for n in range(missed)]
        assert await read_all(client, group) == texts
    assert b"secret" not in path.read_bytes()


async def test_messages_lost_with_redis_are_removed(
    breakable: Stack, new_name: NewName, tmp_path: Path
) -> None:
    """In a new epoch the cache becomes equal to the server's history."""
    path, bob_name = tmp_path / "bob.db", await add_user(breakable, new_name("bob"))
    (worker,) = breakable.workers.values()
    alice = client_of(breakable, new_name("alice"))
    async with alice, consuming(client_of(breakable, bob_name, SqliteStore(path))) as bob:
        chat = (await alice.open_direct(bob_name)).id
        await alice.send(chat, "stored", durability="stored")
        await wait_until_shown(bob, chat, ["stored"])
    worker.kill()
    try:
        async with (
            client_of(breakable, alice.user, device="lost") as short,
            consuming(client_of(breakable, bob_name, SqliteStore(path))) as bob,
        ):
            await short.send(chat, "only in Redis")
            await wait_until_shown(bob, chat, ["stored", "only in Redis"])
        async with redis.from_url(breakable.redis_url) as client:
            await client.flushall()
    finally:
        await start_async(worker)

    async with consuming(client_of(breakable, bob_name, SqliteStore(path))) as bob:
        await wait_until_shown(bob, chat, ["stored"])

        await eventually_equal(lambda: _cached(bob, chat), ["stored"])
    async with offline_client(breakable, path) as offline:
        assert await read_all(offline, chat) == ["stored"]


async def _cached(client: ChatClient, chat: str) -> list[str] | None:
    page = await client._read_cached({"chat": chat, "limit": 100})
    return None if page is None else [e.body for e in page.entries if e.target is None]


async def test_messages_of_a_chat_are_removed_after_leaving(
    stack: Stack, new_name: NewName, tmp_path: Path
) -> None:
    """The device would not receive later deletions of them."""
    path, bob_name = tmp_path / "bob.db", await add_user(stack, new_name("bob"))
    async with client_of(stack, new_name("alice")) as alice:
        chat = (await alice.create_chat([bob_name], name="Trip")).id
        async with consuming(client_of(stack, bob_name, SqliteStore(path))) as bob:
            await alice.send(chat, "secret")
            await wait_until_shown(bob, chat, ["secret"])
        await alice.remove(chat, bob_name)
        async with consuming(client_of(stack, bob_name, SqliteStore(path))) as bob:
            await eventually(
                lambda: (known := bob.find_chat(chat)) is None or known.is_left,
                DEADLINE_S,
                "the client knows that it was removed",
            )

    async with offline_client(stack, path) as client:
        assert client.messages(chat) == []
        with pytest.raises(Unavailable):
            await client.history(chat)
    assert b"secret" not in path.read_bytes()


async def test_messages_expire_offline(stack: Stack, new_name: NewName, tmp_path: Path) -> None:
    """`expires_at` removes messages from memory and from the file without an event."""
    path, bob_name = tmp_path / "bob.db", await add_user(stack, new_name("bob"))
    alice = client_of(stack, new_name("alice"))
    async with alice, consuming(client_of(stack, bob_name, SqliteStore(path))) as bob:
        chat = (await alice.open_direct(bob_name)).id
        await alice.send(chat, "secret", expires_s=4)
        await alice.send(chat, "public")
        await eventually(
            lambda: len(bob.messages(chat)) == 2, DEADLINE_S, "both messages are received"
        )

    async with offline_client(stack, path) as client:
        await wait_until_shown(client, chat, ["", "public"])
        assert await read_all(client, chat) == ["", "public"]
    async with offline_client(stack, path):
        pass
    assert b"secret" not in path.read_bytes()


async def test_messages_posted_offline_are_sent_once(
    stack: Stack, new_name: NewName, tmp_path: Path
) -> None:
    """Messages in the file survive restarts and are sent in order."""
    path, alice_name = tmp_path / "alice.db", new_name("alice")
    async with consuming(client_of(stack, await add_user(stack, new_name("bob")))) as bob:
        async with client_of(stack, alice_name, SqliteStore(path)) as alice:
            chat = (await alice.open_direct(bob.user)).id
            await alice.send(chat, "0", durability="stored")
        async with offline_client(stack, path) as alice:
            for number in range(1, 4):
                alice.post(chat, str(number))
        async with offline_client(stack, path) as alice:
            alice.post(chat, "4")
            pending = alice.pending_operations(chat)
            assert [operation.fields["body"] for operation in pending] == ["1", "2", "3", "4"]

        async with consuming(client_of(stack, alice_name, SqliteStore(path))) as alice:
            await wait_until_shown(bob, chat, ["0", "1", "2", "3", "4"])
            await eventually(
                lambda: alice.pending_operations(chat) == [], DEADLINE_S, "all messages are stored"
            )
        async with client_of(stack, alice_name, SqliteStore(path)):
            pass
        assert await read_all(bob, chat) == ["0", "1", "2", "3", "4"]


async def test_cache_evicts_oldest_entries_at_its_limits(
    stack: Stack, new_name: NewName, tmp_path: Path
) -> None:
    """Evicted entries are read from the server; offline they raise an error."""
    path, bob_name = tmp_path / "bob.db", await add_user(stack, new_name("bob"))
    bounds = {"entries_per_chat_max": 30, "bytes_max": 8_000}
    async with client_of(stack, new_name("alice")) as alice:
        chats = [(await alice.create_chat([bob_name], name=name)).id for name in ("A", "B")]
        store = SqliteStore(path, **bounds)  # type: ignore[arg-type]  # numbers
        async with consuming(client_of(stack, bob_name, store)) as bob:
            for chat in chats:
                for number in range(40):
                    await alice.send(chat, f"{number}")
                await eventually(
                    lambda chat=chat: (m := bob.messages(chat)) and m[-1].body == "39",
                    DEADLINE_S,
                    "all messages are received",
                )
            assert (await read_all(bob, chats[0]))[-40:] == [str(n) for n in range(40)]

    store = SqliteStore(path, **bounds)  # type: ignore[arg-type]  # numbers
    assert store.cache.size <= 8_000
    assert store.cache.entries <= 60
    store.close()
    async with offline_client(stack, path) as client:
        page = await client.history(chats[0], limit=10)
        assert [entry.body for entry in page.entries] == [str(n) for n in range(30, 40)]
        with pytest.raises(Unavailable, match="not cached"):
            await read_all(client, chats[0])
    assert path.stat().st_size < 200_000


async def test_store_in_use_or_of_another_user_or_server_is_refused(
    stack: Stack, new_name: NewName, tmp_path: Path
) -> None:
    """The error names the owner of the file."""
    path, alice, bob = (
        tmp_path / "alice.db",
        new_name("alice"),
        await add_user(stack, new_name("bob")),
    )
    async with client_of(stack, alice, SqliteStore(path)):
        with pytest.raises(Conflict, match="in use by another client"):
            async with client_of(stack, alice, SqliteStore(path), device="second"):
                pass

    with pytest.raises(Conflict, match=f"belongs to {alice}"):
        async with client_of(stack, bob, SqliteStore(path)):
            pass
    with pytest.raises(Conflict, match=f"belongs to user {alice}, not {bob}"):
        async with ChatClient(
            f"ws://127.0.0.1:{stack.port}/", stack.token(bob), store=SqliteStore(path)
        ):
            pass
    with pytest.raises(Conflict, match="belongs to server"):
        async with client_of(stack, alice, SqliteStore(path, server="elsewhere")):
            pass


async def test_forget_deletes_the_file(stack: Stack, new_name: NewName, tmp_path: Path) -> None:
    """After a logout no data of the user is on the disk."""
    path = tmp_path / "alice.db"
    async with client_of(stack, new_name("alice"), SqliteStore(path)) as client:
        chat = (await client.open_direct(await add_user(stack, new_name("bob")))).id
        await client.send(chat, "secret")
        await client.forget()
        with pytest.raises(Unavailable):
            await client.send(chat, "too late")

    assert list(tmp_path.iterdir()) == []
