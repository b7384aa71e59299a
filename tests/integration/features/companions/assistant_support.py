"""Helpers of the tests of AI responses: a user, companions and an assistant worker."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from chatserver.config import Warm
from chatserver.container.storage import StorageContainer
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, GatewayId, Mid, Ref, Seq, UserId
from chatserver.domain.message_change_types import ChangeOutcome, MessageChange
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.frames import AiSignal
from chatserver.features.companions.hot.pending_responses import PendingResponses
from chatserver.features.companions.hot.response_stream import ResponseStream
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.model import VersionChanges
from chatserver.features.companions.settings import Companions
from chatserver.features.companions.worker.assistant_worker import run_assistant
from chatserver.hot.bus.gateway_stream import UserSignal
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.message_changes import HiddenMessages, MessageChangeCommitter
from chatserver.protocol import codec, frames
from tests.integration.workers.support import (
    Gateway,
    make_users,
    open_container,
    running,
    variables_of,
)
from tests.support.constants import constants
from tests.support.servers.processes import eventually

_MODEL_CALL = "chatserver.features.companions.providers.model_call."
_RESPONDER = "chatserver.features.companions.worker.responder."
_SUMMARIES = "chatserver.features.companions.worker.session_summaries."
FAST: dict[str, Any] = {
    "chatserver.features.companions.providers.registry.SCRIPTED_DELTA_MS": 1,
    "chatserver.features.companions.worker.assistant_worker.LEASE_S": 15.0,
    f"{_MODEL_CALL}BACKOFF_S": 0.01,
    f"{_RESPONDER}FLUSH_MS": 0,
}
# Constants of the product that a test may set by keyword.
_CONSTANTS = {
    "response_timeout_s": "chatserver.features.companions.response_timeouts.RESPONSE_TIMEOUT_S",
    "context_messages_max": "chatserver.features.companions.worker.prompt_context"
    ".CONTEXT_MESSAGES_MAX",
    "memory_messages": "chatserver.features.companions.worker.memory_extraction.MEMORY_MESSAGES",
    "summary_tokens_max": f"{_SUMMARIES}SUMMARY_TOKENS_MAX",
    "join_s": f"{_RESPONDER}JOIN_S",
    **{
        name: f"{_MODEL_CALL}{name.upper()}"
        for name in ("between_s", "first_delta_s", "attempts_max")
    },
}
_numbers = itertools.count(1)


class AssistantWorld:
    """A user, companions, and an assistant worker that runs in this process."""

    def __init__(self, container: StorageContainer, values: dict[str, Any]) -> None:
        self.container = container
        self._values = values
        self.hot = container.hot
        self.gateway = Gateway(container.hot)
        self.log = ChatLog(container.hot)
        self.deltas = ResponseStream(container.hot)
        self.budgets = TokenBudgets(container.hot, container.settings.get(Companions))
        self.pending = PendingResponses(container.hot, 0)
        self.environment: dict[str, str] = {}  # of the worker processes
        self.alice = UserId(f"alice-{secrets.token_hex(4)}")

    # actions

    async def companion(self, model: str = "echo", **more: Any) -> CompanionId:
        fields = {"name": "Ada", "prompt": "Be kind.", "provider": "scripted", "model": model}
        id_ = f"ai-{secrets.token_hex(6)}"
        made = await self.container.get(CompanionContainer).companions.create(
            id_, VersionChanges(**{**fields, **more})
        )
        return made.id

    async def session(self, model: str = "echo", **more: Any) -> ChatId:
        return await self.begin(await self.companion(model, **more))

    async def begin(self, companion: CompanionId) -> ChatId:
        await make_users(self.container, self.alice)
        opened = await self.container.get(CompanionContainer).sessions.create(
            self.alice, companion, Ref(secrets.token_hex(6))
        )
        return opened.session.chat

    async def send(self, chat: ChatId, *texts: str) -> None:
        await self.gateway.send(await self.container.audiences.get(chat), *texts, sender=self.alice)

    async def change(self, chat: ChatId, seq: int, kind: str, text: str = "") -> None:
        ref, mid = Ref(f"c{next(_numbers)}"), Mid("M")
        tail = codec.encode_entry_tail(chat, mid, self.alice, ref, kind, text, seq)
        made = MessageChange(chat, self.alice, ref, mid, "dd", kind, Seq(seq), text, tail)
        changed = await MessageChangeCommitter(self.hot, GatewayId("gw")).commit_change(made)
        assert changed.outcome is ChangeOutcome.COMMITTED

    async def hide(self, chat: ChatId, seq: int) -> None:
        await HiddenMessages(self.hot).hide(self.alice, chat, Seq(seq))

    def running_worker(self, owner: str = "a1") -> contextlib.AbstractAsyncContextManager[Any]:
        return running(run_assistant(self.container, owner), "assistant")

    def variables(self, **more: str) -> dict[str, str]:
        """Return the environment of a worker process on the same servers."""
        settings = {
            f"CHAT_COMPANIONS_{name}".upper(): str(value)
            for name, value in self.container.settings.get(Companions)
            .model_dump(exclude_unset=True)
            .items()
        }
        values = {name: str(value) for name, value in self._values.items()}
        return {
            **variables_of(self.container),
            **settings,
            **values,
            **self.environment,
            **more,
        }

    async def end_lease(self) -> None:
        await self.hot.call("HSET", self.hot.keys.lease(0, "assistant"), "until_ms", 0)

    # queries

    async def messages(self, chat: ChatId) -> list[frames.Message]:
        """Return all messages of the chat, from the log in Redis."""
        entries = await self.log.list_after(chat, Seq(0), 500)
        return [
            codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail))
            for entry in entries
        ]

    async def responses(self, chat: ChatId) -> list[frames.Message]:
        """Return the companion's messages."""
        return [one for one in await self.messages(chat) if one.sender != self.alice]

    async def wait_for_responses(self, chat: ChatId, count: int) -> list[frames.Message]:
        """Wait for `count` messages of the companion, and until the worker is idle."""

        async def are_there() -> bool:
            return len(await self.responses(chat)) >= count

        await eventually(are_there, what=f"{count} responses")
        await self.wait_until_idle()
        return await self.responses(chat)

    async def wait_until_idle(self) -> None:
        """Wait until no response is pending and the backlog is scanned."""

        async def is_idle() -> bool:
            newest = await self.hot.call(
                "XREVRANGE", self.hot.keys.backlog(0), "+", "-", "COUNT", 1
            )
            scanned = await self.hot.call("HGET", self.hot.keys.checkpoint(0), "heard")
            is_scanned = not newest or newest[0][0] == scanned
            return bool(is_scanned) and await self.pending.count() == 0

        await eventually(is_idle, what="no response is pending")

    def signals(self, chat: ChatId) -> list[AiSignal]:
        """Return the signals of responses that Alice's devices received."""
        found = [
            msgspec.json.decode(mail.frame, type=AiSignal)
            for mail in self.gateway.received(UserSignal)
        ]
        return [signal for signal in found if signal.chat == chat]


@contextlib.asynccontextmanager
async def open_assistant_world(
    redis_url: str, warm: Warm, sections: dict[str, Any] | None = None, **companions: Any
) -> AsyncIterator[AssistantWorld]:
    """Open the world on the servers of a test and connect Alice to a gateway.

    `sections` are more sections of the settings.
    """
    changed = {_CONSTANTS[name]: companions.pop(name) for name in {*companions} & {*_CONSTANTS}}
    values = {**FAST, **changed}
    section = Companions(**companions)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(constants(values))
        container = await stack.enter_async_context(
            open_container(redis_url, warm, companions=section, **(sections or {}))
        )
        world = AssistantWorld(container, values)
        listening = asyncio.create_task(world.gateway.listen(), name="gateway")
        try:
            await world.gateway._gateway_stream.renew()
            await world.gateway.announce(world.alice)
            yield world
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def joined_text(signals: list[AiSignal]) -> str:
    """Return the text of one response and check that no signal is missing."""
    assert [signal.index for signal in signals] == list(range(len(signals)))
    assert len({(signal.turn, signal.seq) for signal in signals}) == 1
    return "".join(signal.text for signal in signals)


def group_by_turn(signals: list[AiSignal]) -> dict[str, list[AiSignal]]:
    """Return the signals of each AI response, in the order in which responses started."""
    found: dict[str, list[AiSignal]] = {}
    for signal in signals:
        found.setdefault(signal.turn, []).append(signal)
    return found
