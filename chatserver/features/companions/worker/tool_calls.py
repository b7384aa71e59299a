"""Tool calls: signed POST requests to the host application, on behalf of a model.

Each request has an idempotency key. If the response is generated again after a crash, and the model
makes the same call, the key is the same. The host application must process each key only once.
Failures are returned to the model, which responds to the user accordingly.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import attrs
import msgspec
import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import Seq
from chatserver.errors import ChatError
from chatserver.features.companions.companion_options import Tool
from chatserver.features.companions.model import Companion, CompanionSession
from chatserver.features.companions.providers.interface import ToolCall, ToolResult
from chatserver.features.webhooks.client import Webhook
from chatserver.outbound.http_client import HttpClient
from chatserver.telemetry import metrics

log = structlog.get_logger()

CALLS_MAX: Final = 8
CALL_S_MAX: Final = 10.0
RESULT_BYTES_MAX: Final = 16_384
RESULT_CHARS_MAX: Final = 8_000  # maximum characters that the model gets of a tool's result
UNAVAILABLE: Final = "this tool is not available"


class ToolRequest(msgspec.Struct, frozen=True):
    """The body of the request for a tool call. `id` is the idempotency key."""

    type: str
    id: str
    tool: str
    input: dict[str, Any]
    companion: str
    version: int
    chat: str
    user: str
    seq: int  # seq of the message that the companion answers


class _Outcome(NamedTuple):
    text: str
    is_error: bool = False


@attrs.define(eq=False, repr=False, kw_only=True)
class ToolRunner:
    """Runs the tool calls of one response, up to `CALLS_MAX`."""

    _outbound: HttpClient
    _secret: str
    _clock: Clock
    _session: CompanionSession
    _persona: Companion
    _seq: Seq
    count: int = attrs.field(default=0, init=False)

    async def run(self, call: ToolCall) -> ToolResult:
        """Run a call and return its result.

        Guarantees:
            At most one request is sent, bounded by `CALL_S_MAX` and `RESULT_BYTES_MAX`.
            Failures are returned, not raised.
        """
        outcome = await self._run(call)
        metrics.TOOL_CALLS.labels("failed" if outcome.is_error else "done").inc()
        return ToolResult(call.id, outcome.text[:RESULT_CHARS_MAX] or "(empty)", outcome.is_error)

    async def _run(self, call: ToolCall) -> _Outcome:
        number = self.count
        self.count += 1
        if number >= CALLS_MAX:
            return self._fail(call, f"at most {CALLS_MAX} calls per response are allowed")
        tools = {tool.name: tool for tool in self._persona.options.tools}
        tool, arguments = tools.get(call.name), call.parse_input()
        if tool is None:
            return self._fail(call, "there is no such tool")
        if arguments is None:
            return self._fail(call, "the input is not a JSON object")
        if not self._secret:
            log.error("assistant.tool_without_secret", setting="webhooks.secret")
            return self._fail(call, UNAVAILABLE)
        key = call_key(self._session, self._seq, number, call.name, arguments)
        try:
            response = await self._make_webhook(tool).call(
                msgspec.json.encode(self._request(key, call.name, arguments)),
                "tool_call",
                key,
                RESULT_BYTES_MAX,
            )
        except ChatError as exc:
            return self._fail(call, exc.public_message, exc.message)
        if not response.is_ok:
            return self._fail(call, f"the tool returned status {response.status}")
        return _Outcome(response.body.decode("utf-8", "replace"))

    def _fail(self, call: ToolCall, reason: str, detail: str = "") -> _Outcome:
        log.warning(
            "assistant.tool_failed",
            companion=self._persona.id,
            tool=call.name[:64],
            error=detail or reason,
        )
        return _Outcome(f"error: {reason}", is_error=True)

    def _request(self, key: str, name: str, arguments: dict[str, Any]) -> ToolRequest:
        session = self._session
        return ToolRequest(
            type="tool_call",
            id=key,
            tool=name,
            input=arguments,
            companion=session.companion,
            version=self._persona.version,
            chat=session.chat,
            user=session.user,
            seq=self._seq,
        )

    def _make_webhook(self, tool: Tool) -> Webhook:
        return Webhook(
            outbound=self._outbound,
            url=tool.url,
            secret=self._secret,
            timeout_s=CALL_S_MAX,
            clock=self._clock,
        )


def call_key(
    session: CompanionSession, seq: int, number: int, name: str, arguments: dict[str, Any]
) -> str:
    """Return the idempotency key of a tool call. `number`: its position in the response, from 0."""
    encoded = msgspec.json.encode([session.chat, seq, number, name, arguments], order="sorted")
    return hashlib.blake2b(encoded, digest_size=16, person=b"tool").hexdigest()
