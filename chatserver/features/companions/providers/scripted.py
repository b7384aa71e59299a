"""Scripted model for development and tests: deterministic output at a fixed rate.

The model name selects what the model does. Some names take a number, for example `story:40`.

| model        | output                                                                            |
|--------------|-----------------------------------------------------------------------------------|
| `echo`       | the user's last message                                                           |
| `memory`     | the same as `facts`; also remembers each user message                             |
| `story:N`    | N numbered words                                                                  |
| `facts`      | the system prompt, how many messages there are, and the first and last of them    |
| `endless`    | words without end                                                                 |
| `refuse`     | nothing: the model refuses                                                        |
| `throttle:N` | N throttling errors for each message, then the same as `echo`                     |
| `down`       | an error: the provider is down                                                    |
| `silent`     | nothing: the stream hangs                                                         |
| `dies:N`     | N words, then the stream fails                                                    |
| `stalls:N`   | N words, then the stream hangs                                                    |
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import re
from collections.abc import AsyncGenerator, Iterator

import msgspec

from chatserver.errors import ConfigError, Overloaded, Unavailable
from chatserver.features.companions.providers.interface import Delta, Finish, ModelRequest, Piece
from chatserver.features.companions.providers.token_estimates import estimate_tokens

NUMBER_MAX = 10_000
SHOWN_CHARS = 60
REMEMBERED_MAX = 10_000  # maximum messages for which model `throttle` counts its errors
_MODEL = re.compile(r"([a-z]+)(?::([0-9]{1,5}))?")
_RULES_WITH_NUMBER = {"story", "throttle", "dies", "stalls"}
_RULES = {"echo", "facts", "memory", "endless", "refuse", "down", "silent", *_RULES_WITH_NUMBER}


class Scripted:
    """Provider `scripted`."""

    def __init__(self, delta_s: float) -> None:
        self._delta_s = delta_s
        self._throttled: collections.Counter[str] = collections.Counter()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """See `Provider.stream`. The same request always produces the same output.

        Only `throttle` depends on earlier requests: it fails N times for each message.
        """
        rule, number = _parse(request.model)
        last = request.messages[-1].text
        if request.purpose == "memory" and rule not in ("memory", "down", "silent"):
            yield Finish("done", _count(request), 0)
            return
        if rule == "throttle":
            self._throttle(last, number)
        if rule == "down":
            raise Unavailable("provider scripted: is down (simulated by model `down`)")
        if rule == "silent":
            await asyncio.Event().wait()
        if rule == "refuse":
            yield Finish("refused", _count(request), 0)
            return
        tokens_out = 0
        for word in _iter_words(rule, number, request, last):
            tokens_out += 1
            if tokens_out > request.answer_tokens_max and rule != "endless":
                yield Finish("length", _count(request), tokens_out - 1)
                return
            await asyncio.sleep(self._delta_s)
            yield Delta(word)
        if rule == "dies":
            raise Unavailable("scripted: the stream died")
        if rule == "stalls":
            await asyncio.Event().wait()
        yield Finish("done", _count(request), tokens_out)

    def _throttle(self, text: str, times: int) -> None:
        if self._throttled[text] < times:
            if len(self._throttled) > REMEMBERED_MAX:
                self._throttled.clear()
            self._throttled[text] += 1
            raise Overloaded("scripted: too many requests")


def _parse(model: str) -> tuple[str, int]:
    match = _MODEL.fullmatch(model)
    if (
        match is None
        or match[1] not in _RULES
        or (match[2] is None) != (match[1] not in _RULES_WITH_NUMBER)
    ):
        raise ConfigError(f"scripted: has no model {model}")
    return match[1], min(int(match[2] or 0), NUMBER_MAX)


def _iter_words(rule: str, number: int, request: ModelRequest, last: str) -> Iterator[str]:
    match rule:
        case "story" | "dies" | "stalls":
            words: Iterator[str] = (f"word{n} " for n in range(1, number + 1))
        case "endless":
            words = (f"word{n} " for n in itertools.count(1))
        case "memory" if request.purpose == "memory":
            texts = [
                message["text"]
                for message in msgspec.json.decode(last)["messages"]
                if message["from"] == "user"
            ]
            lines = [f"ADD The user wrote: {text}\n" for text in texts]
            words = iter([*lines, f"SUMMARY Messages: {len(texts)}"])
        case "facts" | "memory":
            first = request.messages[0].text[:SHOWN_CHARS]
            preview = f"from: {first} to: {last[-SHOWN_CHARS:]}"
            text = f"{request.system} {len(request.messages)} messages, {preview}"
            words = iter(re.findall(r"\s*\S+", text))
        case _:
            words = iter(re.findall(r"\s*\S+", f"You said: {last}"))
    return words


def _count(request: ModelRequest) -> int:
    return estimate_tokens(request.system) + sum(
        estimate_tokens(message.text) for message in request.messages
    )
