"""What a model is given of a session: the persona, the summary, and the newest turns that fit.

Pure functions. Messages come from a page of the chat's history as its user sees it; what is
deleted, failed or no message is left out. An answer stands behind the message that it answers,
also where the user had gone on in between.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from chatserver.ai.provider import Role, Said
from chatserver.ai.tokens import cut_to_tokens, estimate_tokens
from chatserver.domain.companions import Companion, Memory
from chatserver.protocol.entries import is_message
from chatserver.protocol.frames import Message

ROOM_TOKENS_MIN = 64  # for what was said, however long a persona is
REMEMBERED = "\n\nThis was said before, in short:\n"
FULL_SHARE = 0.75  # of the room: beyond it the oldest turns are summarized
KEPT_SHARE = 0.4  # of the room: what stays as it was said, then
KEPT_MIN = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Utterance:
    """A message as a model is told it."""

    seq: int
    role: Role
    text: str
    reply_to: int = 0

    @property
    def tokens(self) -> int:
        """About how many tokens it has."""
        return estimate_tokens(self.text)

    @property
    def order(self) -> tuple[int, int, int]:
        """Where it stands: an answer behind what it answers."""
        return (self.reply_to or self.seq, int(self.reply_to > 0), self.seq)


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """What a model is given, and about how many tokens that is."""

    system: str
    messages: tuple[Said, ...]
    tokens: int


def hear(messages: Iterable[Message], companion: str) -> list[Utterance]:
    """Return what was said in a session, in rising seq."""
    found = []
    for message in messages:
        if not is_message(message) or message.deleted:
            continue
        if message.ai is not None and message.ai.end == "failed":
            continue  # it tells the user why there is no answer
        text = message.body or "".join(f"[file: {file.name}]" for file in message.attachments)
        if not text.strip():
            continue
        if message.sender == companion:
            found.append(Utterance(message.seq, "assistant", text, message.reply_to or 0))
        else:
            found.append(Utterance(message.seq, "user", text))
    return found


def room_of(persona: Companion, memory: Memory | None) -> int:
    """Return how many tokens there are for what was said; the answer has to fit behind it."""
    used = estimate_tokens(persona.prompt) + persona.answer_tokens_max
    if memory is not None:
        used += estimate_tokens(REMEMBERED + memory.text)
    return max(ROOM_TOKENS_MIN, persona.context_tokens_max - used)


def build_context(
    persona: Companion, memory: Memory | None, said: Sequence[Utterance], seq: int
) -> Context | None:
    """Return what a model is given to answer the message at `seq`; None: nobody asked anything.

    Guarantees:
        The message is part of it, cut if it has to be; of the others the newest that fit.
        The sides take turns, and the user begins.
    """
    upto = 0 if memory is None else memory.upto
    asked = [one for one in said if one.seq > upto and (one.role == "assistant" or one.seq <= seq)]
    # What was said to later messages is no part of what came before this one.
    asked = sorted((one for one in asked if one.reply_to < seq), key=lambda one: one.order)
    if not asked or asked[-1].role == "assistant":
        return None  # what was asked since the last answer is not there any more
    room = room_of(persona, memory)
    chosen: list[Utterance] = []
    for one in reversed(asked):
        tokens = one.tokens
        if tokens > room and not chosen:
            one = dataclasses.replace(one, text=cut_to_tokens(one.text, room))
            tokens = room
        if tokens > room:
            break
        room -= tokens
        chosen.append(one)
    chosen.reverse()
    messages = _in_turns(chosen)
    system = persona.prompt + (REMEMBERED + memory.text if memory is not None else "")
    tokens = estimate_tokens(system) + sum(estimate_tokens(each.text) for each in messages)
    return Context(system, messages, tokens)


def _in_turns(said: Sequence[Utterance]) -> tuple[Said, ...]:
    """Return what was said with the words of one side joined, from the first of the user on."""
    turns: list[Said] = []
    for one in said:
        if turns and turns[-1].role == one.role:
            turns[-1] = Said(one.role, f"{turns[-1].text}\n\n{one.text}")
        elif turns or one.role == "user":
            turns.append(Said(one.role, one.text))
    return tuple(turns)


def choose_old(
    said: Sequence[Utterance], memory: Memory | None, room: int, messages_max: int
) -> list[Utterance]:
    """Return what is to be summarized, the oldest that no summary has; nothing while all fits."""
    upto = 0 if memory is None else memory.upto
    open_ = [one for one in said if one.seq > upto]
    tokens, count = sum(one.tokens for one in open_), len(open_)
    if tokens <= room * FULL_SHARE and count <= messages_max * FULL_SHARE:
        return []
    old: list[Utterance] = []
    for one in open_:
        if count <= KEPT_MIN:
            break
        if tokens <= room * KEPT_SHARE and count <= messages_max * KEPT_SHARE:
            break
        old.append(one)
        tokens, count = tokens - one.tokens, count - 1
    return old
