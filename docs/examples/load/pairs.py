"""Pairs of users chat: each writes about every two seconds, and checks that the other got it."""

from chatserver.loadtest.script import LoadUser

USERS = 20


async def user(user: LoadUser) -> None:
    while user.is_running:
        await user.think(2.0)
        message = user.send("direct", "How are you?")
        await message.check_delivered(within_s=1.0)
