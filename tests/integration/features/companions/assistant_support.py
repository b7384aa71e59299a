"""Support of the tests of AI responses: a user, a companion, and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from chatserver import config
from chatserver.config import Warm
from chatserver.container.storage import StorageContainer
from chatserver.domain.amendments import Amendment, Outcome
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, GatewayId, Mid, Ref, Seq, UserId
from chatserver.features.companions.container import CompanionContainer
from chatserver.features.companions.hot.pending_responses import PendingResponses
from chatserver.features.companions.hot.response_stream import Deltas
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.model import Changes
from chatserver.features.companions.worker.assistant import run_assistant
from chatserver.hot.bus.gateway_stream import UserSignal
from chatserver.hot.chats.amendments import Amendments, Hidden
from chatserver.hot.chats.chat_log import ChatLog
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

_RESPONDER = "chatserver.features.companions.worker.responder."
FAST: dict[str, Any] = {
    "chatserver.features.companions.providers.registry.SCRIPTED_DELTA_MS": 1,
    "chatserver.features.companions.worker.assistant.LEASE_S": 15.0,
    f"{_RESPONDER}BACKOFF_S": 0.01,
    f"{_RESPONDER}FLUSH_MS": 0,
}
# Constants that a test of a world may set.
_CONSTANTS = {
    "response_timeout_s": "chatserver.features.companions.model.RESPONSE_TIMEOUT_S",
    "context_messages_max": "chatserver.features.companions.worker.prompt_context"
    ".CONTEXT_MESSAGES_MAX",
    "memory_messages": "chatserver.features.companions.worker.memory_extraction.MEMORY_MESSAGES",
    "summary_tokens_max": "chatserver.features.companions.worker.memory.SUMMARY_TOKENS_MAX",
    **{
        name: f"{_RESPONDER}{name.upper()}"
        for name in ("between_s", "first_delta_s", "attempts_max", "join_s")
    },
}
_numbers = itertools.count(1)


class AssistantWorld:
    """A user, companions, and a process that answers for them."""

    def __init__(self, container: StorageContainer, values: dict[str, Any]) -> None:
        self.container = container
        self._values = values
        self.hot = container.hot
        self.gateway = Gateway(container.hot)
        self.log = ChatLog(container.hot)
        self.deltas = Deltas(container.hot)
        self.budgets = TokenBudgets(container.hot, container.settings.companions)
        self.asked = PendingResponses(container.hot, 0)
        self.environment: dict[str, str] = {}  # of worker processes
        self.alice = UserId(f"alice-{secrets.token_hex(4)}")

    # doing

    async def companion(self, model: str = "echo", **more: Any) -> CompanionId:
        """Make a companion of the scripted model, or of another one."""
        wanted = {"name": "Ada", "prompt": "Be kind.", "provider": "scripted", "model": model}
        id_ = f"ai-{secrets.token_hex(6)}"
        made = await self.container.get(CompanionContainer).companions.create(
            id_, Changes(**{**wanted, **more})
        )
        return made.id

    async def session(self, model: str = "echo", **more: Any) -> ChatId:
        """Begin a session with a new companion."""
        return await self.begin(await self.companion(model, **more))

    async def begin(self, companion: CompanionId) -> ChatId:
        """Begin a session with a companion."""
        await make_users(self.container, self.alice)
        opened = await self.container.get(CompanionContainer).sessions.create(
            self.alice, companion, Ref(secrets.token_hex(6))
        )
        return opened.session.chat

    async def say(self, chat: ChatId, *texts: str) -> None:
        """Let Alice write."""
        await self.gateway.send(await self.container.audiences.get(chat), *texts, sender=self.alice)

    async def change(self, chat: ChatId, seq: int, kind: str, text: str = "") -> None:
        """Let Alice edit or delete a message of hers."""
        ref, mid = Ref(f"c{next(_numbers)}"), Mid("M")
        tail = codec.encode_entry_tail(chat, mid, self.alice, ref, kind, text, seq)
        made = Amendment(chat, self.alice, ref, mid, "dd", kind, Seq(seq), text, tail)
        amended = await Amendments(self.hot, GatewayId("gw")).amend(made)
        assert amended.outcome is Outcome.COMMITTED

    async def hide(self, chat: ChatId, seq: int) -> None:
        """Let Alice delete a message for herself."""
        await Hidden(self.hot).hide(self.alice, chat, Seq(seq))

    def answering(self, owner: str = "a1") -> contextlib.AbstractAsyncContextManager[Any]:
        """Run a worker that answers."""
        return running(run_assistant(self.container, owner), "assistant")

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of a worker process on the same servers."""
        settings = {
            f"CHAT_COMPANIONS_{name}".upper(): str(value)
            for name, value in self.container.settings.companions.model_dump(
                exclude_unset=True
            ).items()
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
        """Let the lease of a worker that was killed be over."""
        await self.hot.call("HSET", self.hot.keys.lease(0, "assistant"), "until_ms", 0)

    # reading

    async def messages(self, chat: ChatId) -> list[frames.Message]:
        """All that stands in the chat, as the log has it."""
        entries = await self.log.list_after(chat, Seq(0), 500)
        return [
            codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail))
            for entry in entries
        ]

    async def answers(self, chat: ChatId) -> list[frames.Message]:
        """Messages of the companion."""
        return [one for one in await self.messages(chat) if one.sender != self.alice]

    async def wait_answers(self, chat: ChatId, count: int) -> list[frames.Message]:
        """Wait for so many messages of the companion, and for nothing more to do."""

        async def is_there() -> bool:
            return len(await self.answers(chat)) >= count

        await eventually(is_there, what=f"{count} answers")
        await self.idle()
        return await self.answers(chat)

    async def idle(self) -> None:
        """Wait until no response is pending and the backlog is scanned."""

        async def is_idle() -> bool:
            newest = await self.hot.call(
                "XREVRANGE", self.hot.keys.backlog(0), "+", "-", "COUNT", 1
            )
            heard = await self.hot.call("HGET", self.hot.keys.checkpoint(0), "heard")
            is_heard = not newest or newest[0][0] == heard
            return bool(is_heard) and await self.asked.count() == 0

        await eventually(is_idle, what="nothing to answer")

    def signals(self, chat: ChatId) -> list[frames.AiSignal]:
        """Signals of responses that Alice's devices received."""
        found = [
            msgspec.json.decode(mail.frame, type=frames.AiSignal)
            for mail in self.gateway.received(UserSignal)
        ]
        return [signal for signal in found if signal.chat == chat]


@contextlib.asynccontextmanager
async def open_assistant_world(
    redis_url: str, warm: Warm, sections: dict[str, Any] | None = None, **companions: Any
) -> AsyncIterator[AssistantWorld]:
    """A process that answers, on servers of the test's own; Alice is on a gateway.

    `sections` are further sections of its settings.
    """
    given = {_CONSTANTS[name]: companions.pop(name) for name in {*companions} & {*_CONSTANTS}}
    values = {**FAST, **given}
    section = config.Companions(**companions)
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


def joined(signals: list[frames.AiSignal]) -> str:
    """The text of one answer, whose pieces follow on each other."""
    assert [signal.index for signal in signals] == list(range(len(signals)))
    assert len({(signal.turn, signal.seq) for signal in signals}) == 1
    return "".join(signal.text for signal in signals)


@dataclasses.dataclass
class Turns:
    """Signals by AI response, in the order in which responses began."""

    by_turn: dict[str, list[frames.AiSignal]]

    @classmethod
    def of(cls, signals: list[frames.AiSignal]) -> Turns:
        """Sort signals."""
        found: dict[str, list[frames.AiSignal]] = {}
        for signal in signals:
            found.setdefault(signal.turn, []).append(signal)
        return cls(found)
