"""Models behind the OpenAI HTTP API, also offered by vLLM, Ollama, llama.cpp and others.

Chat completions, streamed as server-sent events, with the usage in the last chunk. If a server
sends no usage, the token counts are estimated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import openai

from chatserver.config import Companions
from chatserver.errors import ChatError, ConfigError, Overloaded, Unavailable
from chatserver.features.companions.providers.interface import Ask, Delta, End, Finish

CONNECT_TIMEOUT_S = 5.0
HOME: Final = "api.openai.com"
_ENDS: dict[str, End] = {"length": "length", "content_filter": "refused"}


class OpenAiApi:
    """Provider `openai`. Call `close` at the end."""

    def __init__(self, settings: Companions) -> None:
        self._where = settings.openai_url
        self._sdk = openai.AsyncOpenAI(
            base_url=settings.openai_url,
            # Local servers need no key, but the SDK requires one.
            api_key=settings.openai_key.get_secret_value() or "none",
            max_retries=0,  # retries happen only in `bounded_response`
            timeout=httpx2.Timeout(settings.response_timeout_s, connect=CONNECT_TIMEOUT_S),
        )
        # OpenAI's own models reject `max_tokens`; other servers support only this parameter.
        is_home = urlsplit(settings.openai_url).hostname == HOME
        self._bound = "max_completion_tokens" if is_home else "max_tokens"

    async def close(self) -> None:
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
                        # A refusal text is shown to the user like a response.
                        if text := choice.delta.content or choice.delta.refusal:
                            yield Delta(text)
                        if choice.delta.refusal:
                            end = "refused"
                        if choice.finish_reason is not None:
                            end = end or _ENDS.get(choice.finish_reason, "done")
        except (openai.OpenAIError, httpx2.HTTPError, OSError, ValueError) as exc:
            raise translate(exc, self._where) from exc
        if end is None:
            raise Unavailable(f"{self._where}: the stream was interrupted")
        if usage is None:
            yield Finish(end)
        else:
            yield Finish(end, usage.prompt_tokens, usage.completion_tokens)


def translate(exc: Exception, where: str) -> ChatError:
    """Map an exception of the SDK, or of a lower layer, to an error of this server."""
    text = f"{where}: {type(exc).__name__}: {exc}"[:500]
    if isinstance(exc, openai.RateLimitError):
        return Overloaded(text)
    if isinstance(exc, openai.APIStatusError):
        if exc.status_code >= 500 or exc.status_code in (408, 409):
            return Unavailable(text)
        return ConfigError([text])
    return Unavailable(text)
