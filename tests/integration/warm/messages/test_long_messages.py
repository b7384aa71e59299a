"""Messages of the maximum configurable length in every process, tier and client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from chatserver.client import ChatClient
from tests.integration.features.privacy.support import TIMEOUT_S, Person, Vault, open_vault
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually

# The timeout includes the start of a whole stack.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

LONGEST = 262_144
SETTINGS = {
    "CHAT_CHATS_BODY_CHARS_MAX": str(LONGEST),
    "CHAT_CHATS_BODY_BYTES_MAX": str(LONGEST),
    "CHAT_GATEWAY_FRAME_BYTES_MAX": str(3 * LONGEST + 8192),
    # A slow machine must not count as an unavailable bucket.
    "chatserver.warm.messages.long_bodies.BODY_PUT_TIMEOUT_S": "20",
    "CHAT_REDIS_LOG_MAX": "10",
    "CHAT_REDIS_INBOX_MAX": "10",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def long_message_stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Vault]:
    """A stack with a bucket that accepts long messages and keeps little in Redis."""
    async with open_vault(tmp_path_factory.mktemp("long-messages"), **SETTINGS) as made:
        yield made


def body_of(number: int) -> str:
    """Return a text of `LONGEST` bytes with characters that JSON escapes."""
    text = f'{number} ⟨é⟩ "quoted"\n\\' + "🙂" * 100
    return text + "ab\"'" * ((LONGEST - len(text.encode())) // 4)


def bodies_in(vault: Vault) -> list[bytes]:
    """Return the contents of the long body objects."""
    return [data for key, data in vault.iter_objects() if key.startswith("bodies/")]


async def test_longest_configurable_message_is_delivered_stored_and_changed(
    long_message_stack: Vault,
) -> None:
    """Tests WebSocket, HTTP and the SDK, reads from all three tiers, an edit and a deletion."""
    async with httpx.AsyncClient(
        base_url=long_message_stack.api.endpoint, timeout=TIMEOUT_S
    ) as client:
        alice, bob = Person(client, "long-alice"), Person(client, "long-bob")
        for person in (alice, bob):
            await person.register()
        device = RawChat(alice.user, long_message_stack.stack.port, lambda _: alice.token)
        async with (
            device,
            ChatClient(
                f"ws://127.0.0.1:{long_message_stack.stack.port}/", bob.token, open_s=TIMEOUT_S
            ) as sdk,
        ):
            chat = await device.open_direct(bob.user)
            wanted = [body_of(1), body_of(2)]
            await device.send(chat, wanted[0])
            answer = await alice.request(
                "POST", f"/v1/chats/{chat}/messages", 201, {"body": wanted[1], "ref": "by-http"}
            )
            with pytest.raises(Failed, match="too_large"):
                await device.send(chat, wanted[0] + "more!")
            await eventually(lambda: len(sdk.messages(chat)) == 2)
            received = [message.body for message in sdk.messages(chat)]
            for number in range(30):
                await device.send(chat, f"short {number}", durability="stored")
            # A page is limited in bytes but has at least one message.
            pages = [await device.request("history", chat=chat, after=n, limit=2) for n in range(2)]
            found = await bob.request("GET", f"/v1/chats/{chat}/messages/{answer['seq']}")
            listed = await alice.request("GET", "/v1/me/sent?order=oldest")
            objects = bodies_in(long_message_stack)
            await device.request("edit", chat=chat, seq=1, ref="e1", body="short now")
            await device.request("delete", chat=chat, seq=2, ref="d1")
            await eventually(lambda: not bodies_in(long_message_stack))
            after = await device.request("history", chat=chat, before=3, limit=2)

    assert received == wanted
    assert [(page["tier"], page["messages"][0]["body"]) for page in pages] == [
        ("warm", text) for text in wanted
    ]
    assert found["body"] == wanted[1]
    assert [m["body"] for m in listed["items"]][:2] == wanted
    assert sorted(objects) == sorted(text.encode() for text in wanted)
    assert [m["body"] for m in after["messages"]] == ["short now", ""]
