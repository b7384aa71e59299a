"""AI responses: each message gets one, whatever the model does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatserver.domain.ids import ChatId, Ref
from chatserver.features.companions.companion_options import CompanionOptions
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.keys import CompanionKeys
from chatserver.protocol import frames
from chatserver.service.history.history_pages import HistoryPages
from tests.integration.features.companions.assistant_support import (
    AssistantWorld,
    group_by_turn,
    joined_text,
    open_assistant_world,
)
from tests.integration.warm.support import Tables
from tests.integration.workers.support import persister_of, running, stored_of
from tests.support.servers.processes import eventually, eventually_equal

KEYS = CompanionKeys(1)


async def test_assistant_response_is_streamed_and_committed(
    world: AssistantWorld,
) -> None:
    """The message has the text of the deltas and the token counts."""
    chat = await world.session("echo")
    async with world.running_worker():
        await world.send(chat, "how are you today?")
        (answer,) = await world.wait_for_responses(chat, 1)
        await eventually(lambda: world.signals(chat)[-1:] and world.signals(chat)[-1].end)

    signals = world.signals(chat)
    assert len(await world.messages(chat)) == 2, "it has answered its own message"
    assert answer.body == joined_text(signals) == "You said: how are you today?"
    assert len(signals) >= 4 and signals[0].text == ""
    assert {signal.seq for signal in signals} == {1}
    assert signals[-1].end == "done"
    assert (answer.seq, answer.reply_to, answer.kind) == (2, 1, "text")
    assert answer.ai == frames.Ai("echo", "done", answer.ai.tokens_in, 6) if answer.ai else False
    assert answer.ai is not None and answer.ai.tokens_in > 0


async def test_assistant_response_is_stored_with_its_metadata(world: AssistantWorld) -> None:
    """DynamoDB has the same message as Redis."""
    chat = await world.session("echo")
    async with world.running_worker(), running(persister_of(world.container).run()):
        await world.send(chat, "hello")
        (answer,) = await world.wait_for_responses(chat, 1)

        await eventually_equal(lambda: stored_of(world.container, chat), 2, of=len)

    assert (await stored_of(world.container, chat))[1] == answer


async def test_assistant_responses_of_a_session_are_sequential(
    world: AssistantWorld,
) -> None:
    """Messages sent during a response wait and then get one response together."""
    chat = await world.session("stalls:2")
    async with world.running_worker():
        await world.send(chat, "one")
        await eventually(lambda: len(world.signals(chat)) > 2)
        await world.send(chat, "two", "three")
        for number, seq in ((1, 1), (2, 3)):  # each response runs until it is stopped
            await eventually(lambda n=number: texts_of(world, chat) == ["word1 word2 "] * n)  # type: ignore[misc]  # mypy does not see that `n` has a default
            assert await world.deltas.stop(chat) == seq
        answers = await world.wait_for_responses(chat, 2)

    assert [answer.reply_to for answer in answers] == [1, 3]
    assert [len(turn) > 2 for turn in group_by_turn(world.signals(chat)).values()] == [True] * 2


def texts_of(world: AssistantWorld, chat: ChatId) -> list[str]:
    """Return the text of each response that devices received, in the order of their start."""
    return [joined_text(turn) for turn in group_by_turn(world.signals(chat)).values()]


async def test_assistant_sessions_are_answered_concurrently(world: AssistantWorld) -> None:
    """A session does not wait for the response of another session."""
    slow = await world.session("stalls:1")
    quick = await world.session("echo")
    async with world.running_worker():
        await world.send(slow, "never ends")
        await eventually(lambda: len(world.signals(slow)) >= 2)
        await world.send(quick, "hello")

        await eventually_equal(lambda: world.responses(quick), 1, of=len)
        assert await world.responses(slow) == []


async def test_assistant_answers_message_already_trimmed_from_the_backlog(
    world: AssistantWorld,
) -> None:
    """The persist worker records messages that the assistant has not scanned before it trims."""
    chat = await world.session("echo")
    await world.send(chat, "anybody there?")
    async with running(persister_of(world.container).run()):
        await eventually_equal(lambda: world.hot.call("XLEN", world.hot.keys.backlog(0)), 0)
    assert await world.pending.count() == 1

    async with world.running_worker():
        (answer,) = await world.wait_for_responses(chat, 1)

    assert answer.body == "You said: anybody there?"


async def test_assistant_context_is_one_page_of_history(
    world: AssistantWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for a long session too. The model gets the newest messages that fit."""
    chat = await world.session(
        "facts",
        context_tokens_max=4_000,
        answer_tokens_max=3_000,
        options=CompanionOptions(memory=False),
    )
    texts = [f"message number {n}, " + "and so on " * 20 + f" of them: {n}" for n in range(1, 61)]
    await world.send(chat, *texts)
    calls: list[Any] = []
    read = HistoryPages.get_page

    async def count(self: HistoryPages, reader: Any, frame: frames.History) -> Any:
        calls.append(frame)
        return await read(self, reader, frame)

    monkeypatch.setattr(HistoryPages, "get_page", count)
    async with world.running_worker():
        (answer,) = await world.wait_for_responses(chat, 1)

    # The second call is for the summary, after the response.
    assert [(call.before, call.after, call.limit) for call in calls] == [(None, None, 100)] * 2
    assert " of them: 60" in answer.body
    assert "message number 1," not in answer.body
    assert "Be kind." in answer.body


FAULTS = {
    "refuse": ("refused", "I can't answer that."),
    "down": ("failed", "Sorry, I can't answer right now. Please try again later."),
    "throttle:9": ("failed", "Sorry, I'm too busy right now."),
    "nonsense": ("failed", "Sorry, I can't answer: I'm not configured correctly."),
    "dies:3": ("broken", "word1 word2 word3 "),
    "throttle:2": ("done", "You said: hello"),
    "endless": ("length", "word1 word2 "),
}


async def test_assistant_model_fault_gets_a_message_and_the_session_continues(
    redis_url: str, tables: Tables
) -> None:
    """The user gets a message after every fault and can send another one."""
    found = {}
    async with open_assistant_world(
        redis_url, tables.settings, responses_per_user_max=100
    ) as world:
        chats = {model: await world.session(model, answer_tokens_max=4) for model in FAULTS}
        async with world.running_worker():
            for chat in chats.values():
                await world.send(chat, "hello")
            for model, chat in chats.items():
                (first,) = await world.wait_for_responses(chat, 1)
                assert first.ai is not None
                found[model] = (first.ai.end, first.body[: len(FAULTS[model][1])])
                await world.send(chat, "again")
            for chat in chats.values():
                await world.wait_for_responses(chat, 2)

    assert found == FAULTS


async def test_assistant_model_that_stalls_is_ended_at_its_deadline(
    redis_url: str, tables: Tables
) -> None:
    """The text so far is kept. Without any text the user gets an error message."""
    async with open_assistant_world(redis_url, tables.settings, between_s=0.3) as world:
        chat = await world.session("stalls:2")
        async with world.running_worker():
            await world.send(chat, "hello")
            (late,) = await world.wait_for_responses(chat, 1)
    silence = {"first_delta_s": 0.3, "attempts_max": 2}
    async with open_assistant_world(redis_url, tables.settings, **silence) as world:
        chat = await world.session("silent")
        async with world.running_worker():
            await world.send(chat, "hello")
            (nothing,) = await world.wait_for_responses(chat, 1)

    assert late.ai and late.ai.end == "late"
    assert late.body in ("word1 word2 ", "word1 ")  # the test process itself may have stalled
    assert (nothing.ai and nothing.ai.code, nothing.body[:8]) == ("unavailable", "Sorry, I")


async def test_assistant_deleted_companion_responds_with_an_error(world: AssistantWorld) -> None:
    companion = await world.companion("echo")
    chat = await world.begin(companion)
    await world.container.get(CompanionContainer).companions.delete(companion)
    async with world.running_worker():
        await world.send(chat, "hello")
        (answer,) = await world.wait_for_responses(chat, 1)

    assert answer.ai is not None and (answer.ai.end, answer.ai.code) == ("failed", "not_found")


async def test_assistant_does_not_answer_in_an_ended_session(
    world: AssistantWorld,
) -> None:
    companion = await world.companion("echo")
    chat = await world.begin(companion)
    await world.send(chat, "hello")
    await world.container.get(CompanionContainer).sessions.delete(world.alice, companion)
    async with world.running_worker():
        await world.wait_until_idle()

    assert await world.responses(chat) == []


async def test_assistant_does_not_answer_a_deleted_message(world: AssistantWorld) -> None:
    """A message deleted before it was scanned is never sent to the model."""
    chat = await world.session("facts")
    await world.send(chat, "my password is 1234")
    await world.change(chat, 1, "delete")
    async with world.running_worker():
        await world.wait_until_idle()
        assert await world.responses(chat) == []
        await world.send(chat, "hello")
        (answer,) = await world.wait_for_responses(chat, 1)

    assert "1234" not in answer.body


async def test_assistant_stop_commits_the_text_so_far(world: AssistantWorld) -> None:
    """The message is marked as stopped."""
    chat = await world.session("endless", answer_tokens_max=8000)
    async with world.running_worker():
        await world.send(chat, "tell me everything")
        await eventually(lambda: len(world.signals(chat)) > 5)
        assert await world.deltas.stop(chat) == 1
        (answer,) = await world.wait_for_responses(chat, 1)
        await eventually(lambda: world.signals(chat)[-1].end == "stopped")

    assert answer.ai is not None and answer.ai.end == "stopped"
    assert answer.body == joined_text(world.signals(chat))
    assert answer.body.startswith("word1 word2 ")


async def test_assistant_stop_before_the_first_delta_leaves_no_message(
    world: AssistantWorld,
) -> None:
    chat = await world.session("silent")
    async with world.running_worker():
        await world.send(chat, "hello")
        await eventually(lambda: len(world.signals(chat)) == 1)
        await world.deltas.stop(chat)
        await world.wait_until_idle()

    assert await world.responses(chat) == []
    assert world.signals(chat)[-1].end == "stopped"


async def test_assistant_stop_without_a_response_does_nothing(world: AssistantWorld) -> None:
    """A late stop does not end a later response."""
    chat = await world.session("echo")
    async with world.running_worker():
        await world.send(chat, "one")
        await world.wait_for_responses(chat, 1)
        assert await world.deltas.stop(chat) == 0
        await world.send(chat, "two")
        answers = await world.wait_for_responses(chat, 2)

    assert [answer.ai.end for answer in answers if answer.ai] == ["done", "done"]


async def test_assistant_joined_response_is_complete(world: AssistantWorld) -> None:
    """The text at the join plus the later deltas is the whole response, at any time."""
    chat = await world.session("story:200")
    joins = []
    async with world.running_worker():
        await world.send(chat, "go")
        while not await world.responses(chat):
            found = await world.deltas.find(chat)
            if found is not None:
                joins.append(found)
            await asyncio.sleep(0)
        (answer,) = await world.wait_for_responses(chat, 1)
        await eventually(lambda: world.signals(chat)[-1].end)
    signals = world.signals(chat)

    assert len(joins) > 5
    for found in joins:
        later = "".join(signal.text for signal in signals if signal.index > found.index)
        assert found.text + later == answer.body
    end = await world.deltas.find(chat)
    assert end is not None and (end.text, end.end) == (answer.body, "done")


async def test_assistant_response_stream_expires(redis_url: str, tables: Tables) -> None:
    """A response can be joined until `JOIN_S` after its end."""
    async with open_assistant_world(redis_url, tables.settings, join_s=1) as world:
        chat = await world.session("echo")
        async with world.running_worker():
            await world.send(chat, "hello")
            await world.wait_for_responses(chat, 1)

            await eventually_equal(lambda: world.deltas.find(chat), None)


async def test_assistant_two_workers_respond_once(
    redis_url: str, tables: Tables, world: AssistantWorld
) -> None:
    """One worker has the lease of a partition. When it exits, the other one takes over."""
    chat = await world.session("echo")
    async with (
        open_assistant_world(redis_url, tables.settings) as other,
        other.running_worker("a2"),
    ):
        async with world.running_worker("a1"):
            await world.send(chat, "one")
            await world.wait_for_responses(chat, 1)
        await world.send(chat, "two")
        answers = await world.wait_for_responses(chat, 2)

    assert [answer.reply_to for answer in answers] == [1, 2 + 1]


async def test_assistant_response_of_a_paused_worker_is_not_committed_twice(
    world: AssistantWorld,
) -> None:
    """The ref is derived from the user's message, so the second commit is a duplicate."""
    chat = await world.session("echo")
    async with world.running_worker():
        await world.send(chat, "one")
        (answer,) = await world.wait_for_responses(chat, 1)
        # The state after a worker was killed between its commit and its cleanup.
        asking = KEYS.response(chat)
        await world.hot.call("HSET", asking, "newest", 1, "begun", 1)
        await world.hot.call("ZADD", KEYS.pending(0), 1, chat)
        await world.wait_until_idle()

    assert answer.ref == Ref("ai-1")
    assert await world.responses(chat) == [answer]
    assert len(group_by_turn(world.signals(chat))) == 1, "the response was started again"


async def test_assistant_responses_beyond_the_worker_limit_wait(
    redis_url: str, tables: Tables
) -> None:
    """They start when another response ends."""
    async with open_assistant_world(redis_url, tables.settings, responses_max=1) as world:
        busy, waiting = await world.session("stalls:1"), await world.session("echo")
        async with world.running_worker():
            await world.send(busy, "hello")
            await eventually(lambda: len(world.signals(busy)) >= 2)
            await world.send(waiting, "hello")
            await eventually(lambda: world.hot.call("ZSCORE", KEYS.pending(0), waiting))
            assert world.signals(waiting) == []

            await world.deltas.stop(busy)
            await world.wait_for_responses(waiting, 1)


async def test_assistant_internal_error_gets_an_error_message(
    world: AssistantWorld, tables: Tables
) -> None:
    """The message is sent after several attempts, and the session continues."""
    chat = await world.session("echo")
    await world.send(chat, "hello")
    broken = {"PK": {"S": f"c#{chat}"}, "SK": {"S": f"summary#{chat}"}, "upto": {"S": "none"}}
    table = f"{tables.settings.table_prefix}directory"
    await tables.client.call("put_item", {"TableName": table, "Item": broken})
    await world.hot.call("HSET", KEYS.response(chat), "tries", 5)
    async with world.running_worker():
        (answer,) = await world.wait_for_responses(chat, 1)
        await world.container.get(CompanionContainer).summaries.drop(chat)
        await world.send(chat, "and now?")
        answers = await world.wait_for_responses(chat, 2)

    assert answer.ai is not None and (answer.ai.end, answer.ai.code) == ("failed", "internal")
    assert answers[1].ai is not None and answers[1].ai.end == "done"
