"""Models behind the HTTP API of OpenAI, which many others speak, too: vLLM, Ollama, llama.cpp.

Chat completions, streamed as server-sent events, with the usage in the last chunk. Servers that
send no usage are borne with: then tokens are estimated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import openai

from chatserver.ai.provider import Ask, Delta, End, Finish
from chatserver.config import Assistant
from chatserver.errors import ChatError, ConfigError, Overloaded, Unavailable

CONNECT_TIMEOUT_S = 5.0
HOME: Final = "api.openai.com"
_ENDS: dict[str, End] = {"length": "length", "content_filter": "refused"}


class OpenAiApi:
    """The provider `openai`. Close it at the end."""

    def __init__(self, settings: Assistant) -> None:
        self._where = settings.openai_url
        self._sdk = openai.AsyncOpenAI(
            base_url=settings.openai_url,
            # Local servers want none, but the client insists on one.
            api_key=settings.openai_key.get_secret_value() or "none",
            max_retries=0,  # `speaking` tries again, and nobody else
            timeout=httpx2.Timeout(settings.answer_s, connect=CONNECT_TIMEOUT_S),
        )
        # Their own models refuse the old name of the bound, others know only that one.
        is_home = urlsplit(settings.openai_url).hostname == HOME
        self._bound = "max_completion_tokens" if is_home else "max_tokens"

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.close()

    async def stream(self, ask: Ask) -> AsyncGenerator[Delta | Finish]:
        """See `Provider.stream`."""
        end: End | None = None
        usage: Any = None
        more: dict[str, Any] = {self._bound: ask.answer_tokens_max}
        messages: Any = [
            {"role": "system", "content": ask.system},
            *({"role": said.role, "content": said.text} for said in ask.messages),
        ]
        try:
            stream = await self._sdk.chat.completions.create(
                model=ask.model,
                messages=messages,
                stream=True,
                stream_options={"include_usage": True},
                **more,
            )
            async with stream:
                async for chunk in stream:
                    usage = chunk.usage or usage
                    for choice in chunk.choices[:1]:
                        # What it says instead of an answer is an answer to the user.
                        if text := choice.delta.content or choice.delta.refusal:
                            yield Delta(text)
                        if choice.delta.refusal:
                            end = "refused"
                        if choice.finish_reason is not None:
                            end = end or _ENDS.get(choice.finish_reason, "done")
        except (openai.OpenAIError, httpx2.HTTPError, OSError, ValueError) as exc:
            raise translate(exc, self._where) from exc
        if end is None:
            raise Unavailable(f"{self._where}: the stream was cut off")
        if usage is None:
            yield Finish(end)
        else:
            yield Finish(end, usage.prompt_tokens, usage.completion_tokens)


def translate(exc: Exception, where: str) -> ChatError:
    """Return our error for one of the SDK's, or of what lies below it."""
    text = f"{where}: {type(exc).__name__}: {exc}"[:500]
    if isinstance(exc, openai.RateLimitError):
        return Overloaded(text)
    if isinstance(exc, openai.APIStatusError):
        if exc.status_code >= 500 or exc.status_code in (408, 409):
            return Unavailable(text)
        return ConfigError([text])
    return Unavailable(text)
