"""A lost last push: the gateway finds the message without a later push."""

from __future__ import annotations

from tests.support.servers.processes import redis_client
from tests.support.stack import NewName, Stack


async def test_lost_last_push_is_found_by_comparing_heads(stack: Stack, new_name: NewName) -> None:
    """A message sent while the gateway stream is missing is delivered from the inbox."""
    # The gateway compares heads each second.
    server = stack.start_gateway(CHAT_GATEWAY_ONLINE_TTL_S="3")
    alice = stack.chat_of(new_name("alice"))
    bob = stack.chat_of(new_name("bob"), port=server.port)
    async with alice, bob:
        chat = await alice.open_direct(bob.user)
        await bob.request("open_direct", user=alice.user)
        with redis_client(stack.redis_url) as client:
            client.unlink(f"{{gw:{bob.gateway}}}:stream")  # pushes are lost from now on

        await alice.send(chat, "the last one")

        await bob.expect_bodies(chat, ["the last one"], deadline_s=20)
    server.stop()
    stack.gateways.remove(server)
