"""Answers of companions: each message has one, whatever becomes of the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.domain.ids import ChatId, Ref
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.options import Options
from chatserver.protocol import frames
from chatserver.service.history.service import History
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    Turns,
    joined,
    open_assistant_world,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import persister_of, running, stored_of
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures"]


@pytest.fixture
async def world(redis_url: str, tables: Tables) -> AsyncIterator[AssistantWorld]:
    """A user, and a process that answers."""
    async with open_assistant_world(redis_url, tables.settings) as made:
        yield made


# an answer


async def test_assistant_message_is_answered_in_deltas_and_by_one_message(
    world: AssistantWorld,
) -> None:
    """Streamed while it is made, committed when it is whole, with what it cost."""
    chat = await world.session("echo")
    async with world.answering():
        await world.say(chat, "how are you today?")
        (answer,) = await world.wait_answers(chat, 1)
        await eventually(lambda: world.signals(chat)[-1:] and world.signals(chat)[-1].end)

    signals = world.signals(chat)
    assert answer.body == joined(signals) == "You said: how are you today?"
    assert len(signals) >= 4 and signals[0].text == ""
    assert {signal.seq for signal in signals} == {1}
    assert signals[-1].end == "done"
    assert (answer.seq, answer.reply_to, answer.kind) == (2, 1, "text")
    assert answer.ai == frames.Ai("echo", "done", answer.ai.tokens_in, 6) if answer.ai else False
    assert answer.ai is not None and answer.ai.tokens_in > 0


async def test_assistant_answer_is_stored_with_what_made_it(world: AssistantWorld) -> None:
    """All tiers have the same metadata of a companion's message."""
    chat = await world.session("echo")
    async with world.answering(), running(persister_of(world.container).run()):
        await world.say(chat, "hello")
        (answer,) = await world.wait_answers(chat, 1)

        async def is_stored() -> bool:
            return len(await stored_of(world.container, chat)) == 2

        await eventually(is_stored)

    assert (await stored_of(world.container, chat))[1] == answer


async def test_assistant_answers_of_a_session_come_one_after_the_other(
    world: AssistantWorld,
) -> None:
    """Messages sent during a response wait, and are answered together."""
    chat = await world.session("stalls:2")
    async with world.answering():
        await world.say(chat, "one")
        await eventually(lambda: len(world.signals(chat)) > 2)
        await world.say(chat, "two", "three")
        for number, asked in ((1, 1), (2, 3)):  # each is being made until it is stopped
            await eventually(lambda n=number: texts_of(world, chat) == ["word1 word2 "] * n)  # type: ignore[misc]  # mypy does not see that `n` has a default
            assert await world.deltas.stop(chat) == asked
        answers = await world.wait_answers(chat, 2)

    assert [answer.reply_to for answer in answers] == [1, 3]
    assert [len(turn) > 2 for turn in Turns.of(world.signals(chat)).by_turn.values()] == [True] * 2


def texts_of(world: AssistantWorld, chat: ChatId) -> list[str]:
    """Texts of each response that devices received, in the order in which they began."""
    return [joined(turn) for turn in Turns.of(world.signals(chat)).by_turn.values()]


async def test_assistant_sessions_are_answered_side_by_side(world: AssistantWorld) -> None:
    """No session waits for the model of another."""
    slow = await world.session("stalls:1")
    quick = await world.session("echo")
    async with world.answering():
        await world.say(slow, "never ends")
        await eventually(lambda: len(world.signals(slow)) >= 2)
        await world.say(quick, "hello")

        async def is_answered() -> bool:
            return len(await world.answers(quick)) == 1

        await eventually(is_answered)
        assert await world.answers(slow) == []


async def test_assistant_message_that_was_persisted_before_is_answered(
    world: AssistantWorld,
) -> None:
    """The persist worker records unscanned messages before it trims the backlog."""
    chat = await world.session("echo")
    await world.say(chat, "anybody there?")
    async with running(persister_of(world.container).run()):

        async def is_trimmed() -> bool:
            return bool(await world.hot.call("XLEN", world.hot.keys.backlog(0)) == 0)

        await eventually(is_trimmed)
    assert await world.asked.count() == 1

    async with world.answering():
        (answer,) = await world.wait_answers(chat, 1)

    assert answer.body == "You said: anybody there?"


async def test_assistant_nobody_else_is_answered(world: AssistantWorld) -> None:
    """Other chats, and the companion's own words, are no questions."""
    chat = await world.session("echo")
    async with world.answering():
        await world.say(chat, "hello")
        await world.wait_answers(chat, 1)

    assert len(await world.messages(chat)) == 2


async def test_assistant_context_is_one_page_of_history(
    world: AssistantWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the session is; and the newest turns that fit."""
    chat = await world.session(
        "facts",
        context_tokens_max=4_000,
        answer_tokens_max=3_000,
        options=Options(memory=False),
    )
    texts = [f"message number {n}, " + "and so on " * 20 + f" of them: {n}" for n in range(1, 61)]
    await world.say(chat, *texts)
    calls: list[Any] = []
    read = History.get_page

    async def count(self: History, reader: Any, frame: frames.History) -> Any:
        calls.append(frame)
        return await read(self, reader, frame)

    monkeypatch.setattr(History, "get_page", count)
    async with world.answering():
        (answer,) = await world.wait_answers(chat, 1)

    assert [(call.before, call.after, call.limit) for call in calls] == [(None, None, 100)]
    assert " of them: 60" in answer.body
    assert "message number 1," not in answer.body
    assert "Be kind." in answer.body


# what becomes of the model


FAULTS = {
    "refuse": ("refused", "I can't answer that."),
    "down": ("failed", "Sorry, I can't answer right now. Please try again later."),
    "throttle:9": ("failed", "Sorry, I'm too busy right now."),
    "nonsense": ("failed", "Sorry, I can't answer: I'm not configured correctly."),
    "dies:3": ("broken", "word1 word2 word3 "),
    "throttle:2": ("done", "You said: hello"),
    "endless": ("length", "word1 word2 "),
}


async def test_assistant_fault_has_a_result_and_the_session_goes_on(
    redis_url: str, tables: Tables
) -> None:
    """The user sees a message in every case, and can ask again."""
    found = {}
    async with open_assistant_world(
        redis_url, tables.settings, responses_per_user_max=100
    ) as world:
        chats = {model: await world.session(model, answer_tokens_max=4) for model in FAULTS}
        async with world.answering():
            for chat in chats.values():
                await world.say(chat, "hello")
            for model, chat in chats.items():
                (first,) = await world.wait_answers(chat, 1)
                assert first.ai is not None
                found[model] = (first.ai.end, first.body[: len(FAULTS[model][1])])
                await world.say(chat, "again")
            for chat in chats.values():
                await world.wait_answers(chat, 2)

    assert found == FAULTS


async def test_assistant_model_that_falls_silent_is_let_go(redis_url: str, tables: Tables) -> None:
    """After a deadline the text so far is kept, or a message says that there is none."""
    async with open_assistant_world(redis_url, tables.settings, between_s=0.3) as world:
        chat = await world.session("stalls:2")
        async with world.answering():
            await world.say(chat, "hello")
            (late,) = await world.wait_answers(chat, 1)
    silence = {"first_delta_s": 0.3, "attempts_max": 2}
    async with open_assistant_world(redis_url, tables.settings, **silence) as world:
        chat = await world.session("silent")
        async with world.answering():
            await world.say(chat, "hello")
            (nothing,) = await world.wait_answers(chat, 1)

    assert late.ai and late.ai.end == "late"
    assert late.body in ("word1 word2 ", "word1 ")  # where this process fell silent itself
    assert (nothing.ai and nothing.ai.code, nothing.body[:8]) == ("unavailable", "Sorry, I")


async def test_assistant_companion_that_was_deleted_says_so(world: AssistantWorld) -> None:
    """The user gets an error message, not silence."""
    companion = await world.companion("echo")
    chat = await world.begin(companion)
    await world.container.get(CompanionContainer).companions.delete(companion)
    async with world.answering():
        await world.say(chat, "hello")
        (answer,) = await world.wait_answers(chat, 1)

    assert answer.ai is not None and (answer.ai.end, answer.ai.code) == ("failed", "not_found")


async def test_assistant_session_that_ended_meanwhile_gets_no_answer(
    world: AssistantWorld,
) -> None:
    """An ended session gets no message."""
    companion = await world.companion("echo")
    chat = await world.begin(companion)
    await world.say(chat, "hello")
    await world.container.get(CompanionContainer).sessions.delete(world.alice, companion)
    async with world.answering():
        await world.idle()

    assert await world.answers(chat) == []


async def test_assistant_question_taken_back_has_no_answer(world: AssistantWorld) -> None:
    """A question that was deleted before it was read is not answered or sent to a model."""
    chat = await world.session("facts")
    await world.say(chat, "my password is 1234")
    await world.change(chat, 1, "delete")
    async with world.answering():
        await world.idle()
        assert await world.answers(chat) == []
        await world.say(chat, "hello")
        (answer,) = await world.wait_answers(chat, 1)

    assert "1234" not in answer.body


# stop


async def test_assistant_stop_commits_what_was_said_so_far(world: AssistantWorld) -> None:
    """Marked, and the model is not listened to any more."""
    chat = await world.session("endless", answer_tokens_max=8000)
    async with world.answering():
        await world.say(chat, "tell me everything")
        await eventually(lambda: len(world.signals(chat)) > 5)
        assert await world.deltas.stop(chat) == 1
        (answer,) = await world.wait_answers(chat, 1)
        await eventually(lambda: world.signals(chat)[-1].end == "stopped")

    assert answer.ai is not None and answer.ai.end == "stopped"
    assert answer.body == joined(world.signals(chat))
    assert answer.body.startswith("word1 word2 ")


async def test_assistant_stop_before_the_first_word_leaves_no_message(
    world: AssistantWorld,
) -> None:
    """An empty response has no message."""
    chat = await world.session("silent")
    async with world.answering():
        await world.say(chat, "hello")
        await eventually(lambda: len(world.signals(chat)) == 1)
        await world.deltas.stop(chat)
        await world.idle()

    assert await world.answers(chat) == []
    assert world.signals(chat)[-1].end == "stopped"


async def test_assistant_stop_without_an_answer_does_nothing(world: AssistantWorld) -> None:
    """Pressed too late, it stops no later answer."""
    chat = await world.session("echo")
    async with world.answering():
        await world.say(chat, "one")
        await world.wait_answers(chat, 1)
        assert await world.deltas.stop(chat) == 0
        await world.say(chat, "two")
        answers = await world.wait_answers(chat, 2)

    assert [answer.ai.end for answer in answers if answer.ai] == ["done", "done"]


# joining


async def test_assistant_answer_that_is_joined_is_exact(world: AssistantWorld) -> None:
    """The text so far and the later signals are the whole response, at any time of joining."""
    chat = await world.session("story:200")
    joins = []
    async with world.answering():
        await world.say(chat, "go")
        while not await world.answers(chat):
            found = await world.deltas.find(chat)
            if found is not None:
                joins.append(found)
            await asyncio.sleep(0)
        (answer,) = await world.wait_answers(chat, 1)
        await eventually(lambda: world.signals(chat)[-1].end)
    signals = world.signals(chat)

    assert len(joins) > 5
    for found in joins:
        later = "".join(signal.text for signal in signals if signal.index > found.index)
        assert found.text + later == answer.body
    end = await world.deltas.find(chat)
    assert end is not None and (end.text, end.end) == (answer.body, "done")


async def test_assistant_answer_is_joined_for_a_while_only(redis_url: str, tables: Tables) -> None:
    """The stored stream of a response expires; its message stays."""
    async with open_assistant_world(redis_url, tables.settings, join_s=1) as world:
        chat = await world.session("echo")
        async with world.answering():
            await world.say(chat, "hello")
            await world.wait_answers(chat, 1)

            async def is_gone() -> bool:
                return await world.deltas.find(chat) is None

            await eventually(is_gone)


# two workers


async def test_assistant_two_workers_answer_once(
    redis_url: str, tables: Tables, world: AssistantWorld
) -> None:
    """One answers a partition at a time; when it ends, the other goes on."""
    chat = await world.session("echo")
    async with (
        open_assistant_world(redis_url, tables.settings) as other,
        other.answering("a2"),
    ):
        async with world.answering("a1"):
            await world.say(chat, "one")
            await world.wait_answers(chat, 1)
        await world.say(chat, "two")
        answers = await world.wait_answers(chat, 2)

    assert [answer.reply_to for answer in answers] == [1, 2 + 1]


async def test_assistant_answer_of_one_that_slept_is_not_committed_twice(
    world: AssistantWorld,
) -> None:
    """The ref follows from the question: the second process gets the first result."""
    chat = await world.session("echo")
    async with world.answering():
        await world.say(chat, "one")
        (answer,) = await world.wait_answers(chat, 1)
        # As if a worker had died behind its commit.
        asking = world.hot.keys.asking(chat)
        await world.hot.call("HSET", asking, "newest", 1, "begun", 1)
        await world.hot.call("ZADD", world.hot.keys.asked(0), 1, chat)
        await world.idle()

    assert answer.ref == Ref("ai-1")
    assert await world.answers(chat) == [answer]
    assert len(Turns.of(world.signals(chat)).by_turn) == 1, "nobody saw it begin again"


async def test_assistant_answers_beyond_what_one_worker_makes_wait(
    redis_url: str, tables: Tables
) -> None:
    """Until one has ended; none is lost."""
    async with open_assistant_world(redis_url, tables.settings, responses_max=1) as world:
        busy, waiting = await world.session("stalls:1"), await world.session("echo")
        async with world.answering():
            await world.say(busy, "hello")
            await eventually(lambda: len(world.signals(busy)) >= 2)
            await world.say(waiting, "hello")
            await eventually(lambda: world.hot.call("ZSCORE", world.hot.keys.asked(0), waiting))
            assert world.signals(waiting) == []

            await world.deltas.stop(busy)
            await world.wait_answers(waiting, 1)


async def test_assistant_what_cannot_be_answered_at_all_is_said(
    world: AssistantWorld, tables: Tables
) -> None:
    """An internal error blocks no session: after some tries the user gets an error message."""
    chat = await world.session("echo")
    await world.say(chat, "hello")
    broken = {"PK": {"S": f"c#{chat}"}, "SK": {"S": f"summary#{chat}"}, "upto": {"S": "none"}}
    table = f"{tables.settings.table_prefix}directory"
    await tables.client.call("put_item", {"TableName": table, "Item": broken})
    await world.hot.call("HSET", world.hot.keys.asking(chat), "tries", 5)
    async with world.answering():
        (answer,) = await world.wait_answers(chat, 1)
        await world.container.get(CompanionContainer).summaries.drop(chat)
        await world.say(chat, "and now?")
        answers = await world.wait_answers(chat, 2)

    assert answer.ai is not None and (answer.ai.end, answer.ai.code) == ("failed", "internal")
    assert answers[1].ai is not None and answers[1].ai.end == "done"
