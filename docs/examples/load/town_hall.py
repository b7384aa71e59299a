"""A large chat: one user speaks, the others listen, lose their connection and read the history."""

from chatserver.loadtest.script import LoadUser

CHATS = {"hall": 60}
USERS = 60
DURATION_S = 20


async def user(user: LoadUser) -> None:
    if user.chats["hall"].position == 0:
        async for number in user.every(0.5):
            user.send("hall", f"sentence {number}")
        return
    while user.is_running:
        await user.think(10.0)
        with user.timer("away"):
            await user.reconnect(after_s=user.random.uniform(0.5, 2.0))
        page = await user.read_history("hall")
        user.check("history has a page", page)
