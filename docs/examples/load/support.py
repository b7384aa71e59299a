"""A help desk: customers ask, and the agent of each group answers; the report has the times."""

import time

from chatserver.loadtest.script import LoadUser

CHATS = {"desk": 6}
USERS = 24


async def user(user: LoadUser) -> None:
    is_agent = user.chats["desk"].position == 0
    await (answer(user) if is_agent else ask(user))


async def ask(customer: LoadUser) -> None:
    async for number in customer.every(5.0):
        question, asked = f"question {customer.number}-{number}", time.monotonic()
        customer.send("desk", question)
        is_answered = await wait_for_answer(customer, question, asked + 4.0)
        if customer.check("answered within 4 s", is_answered):
            customer.record_time("answer_time", time.monotonic() - asked)


async def wait_for_answer(customer: LoadUser, question: str, until: float) -> bool:
    while (left_s := until - time.monotonic()) > 0:
        message = await customer.receive("desk", within_s=left_s)
        if message is not None and message.text == f"answer to {question}":
            return True
    return False


async def answer(agent: LoadUser) -> None:
    while True:
        message = await agent.receive("desk")
        agent.mark_read("desk")
        agent.set_typing("desk")
        await agent.think(0.1)
        agent.send("desk", f"answer to {message.text}")
        agent.count("answers")
