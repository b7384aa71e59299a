"""A help desk: customers ask, and the agent of each group answers; the report has the times."""

from chatserver.loadtest.script import LoadUser

CHATS = {"desk": 6}
USERS = 24


async def user(user: LoadUser) -> None:
    is_agent = user.chats["desk"].position == 0
    await (answer(user) if is_agent else ask(user))


async def ask(customer: LoadUser) -> None:
    async for number in customer.every(5.0):
        question = f"question {customer.number}-{number}"
        with customer.timer("answer_time"):
            customer.send("desk", question)
            is_answered = await wait_for_answer(customer, question)
        customer.check("answered within 4 s", is_answered)


async def wait_for_answer(customer: LoadUser, question: str) -> bool:
    while message := await customer.receive("desk", within_s=4.0):
        if message.text == f"answer to {question}":
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
