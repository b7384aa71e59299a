"""The model's context in a companion session: prompt, memory, summary and the newest messages.

Pure functions. The context contains the messages that the user sees in the chat's history. Deleted
messages, failed responses and entries that are not messages are left out. A response is placed
directly after the message that it answers, even if the user wrote more messages in between.

Of an exchange that the model, a guardrail or a moderation model refused, no context, summary or
memory contains either half. User messages are unchecked until a response has accepted them; an
edited message stays unchecked, because its text may be newer than the response.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from chatserver.features.attachments.file_types import RASTER_TYPES
from chatserver.features.companions.model import Companion, SessionSummary
from chatserver.features.companions.providers.interface import Image, ModelMessage, Role
from chatserver.features.companions.providers.token_estimates import cut_to_tokens, estimate_tokens
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import is_message

CONTEXT_MESSAGES_MAX = 100  # maximum messages per model request
ROOM_TOKENS_MIN = 64  # minimum number of tokens for messages, even if the prompt is too long
REMEMBERED = "\n\nThis was said before, in short:\n"
# If the messages fill more than this share of the available tokens, the oldest are summarized.
FULL_SHARE = 0.75
KEPT_SHARE = 0.4  # maximum share that the messages fill after the oldest were summarized
KEPT_MIN = 2
IMAGE_TOKENS = 1_600  # estimated tokens per image; models scale larger images down
UNAVAILABLE = "\n\n[an image is not available]"


@dataclasses.dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message to send to a model."""

    seq: int
    role: Role
    text: str
    reply_to: int = 0
    images: tuple[str, ...] = ()  # attachment ids
    is_checked: bool = False  # see `ModelMessage`
    expires_at: int | None = None  # seconds since 1970

    @property
    def tokens(self) -> int:
        """The estimated number of tokens in the message."""
        return estimate_tokens(self.text) + IMAGE_TOKENS * len(self.images)

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key that places a response after the message that it answers."""
        return (self.reply_to or self.seq, int(self.reply_to > 0), self.seq)


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """A model's input, and its estimated tokens. `images`: attachment ids for each message."""

    system: str
    messages: tuple[ModelMessage, ...]
    tokens: int
    images: tuple[tuple[str, ...], ...] = ()

    @property
    def image_ids(self) -> list[str]:
        """The attachment ids of all images, newest first."""
        return [id_ for ids in reversed(self.images) for id_ in reversed(ids)]

    def build_messages(self, images_by_id: Mapping[str, Image]) -> tuple[ModelMessage, ...]:
        """Return the messages with their images, and a note for each missing image."""
        built = []
        for message, ids in zip(self.messages, self.images, strict=True):
            images = tuple(images_by_id[id_] for id_ in ids if id_ in images_by_id)
            note = UNAVAILABLE if len(images) < len(ids) else ""
            built.append(dataclasses.replace(message, text=message.text + note, images=images))
        return tuple(built)


def build_prompt_messages(
    messages: Iterable[Message], companion: str, images_max: int = 0
) -> list[PromptMessage]:
    """Convert a session's messages, oldest first, to prompt messages.

    The user's `images_max` newest images are attached. Other files are mentioned by name, if their
    message has no body.
    """
    prompt_messages = []
    messages = [entry for entry in messages if is_message(entry) and not entry.deleted]
    answers = _Answers(messages, companion)
    messages = [message for message in messages if not answers.is_left_out(message)]
    image_ids = _choose_images(messages, companion, images_max)
    for message in messages:
        text = message.body or "".join(f"[file: {file.name}]" for file in message.attachments)
        if not text.strip():
            continue
        is_response = message.sender == companion
        prompt_messages.append(
            PromptMessage(
                seq=message.seq,
                role="assistant" if is_response else "user",
                text=text,
                reply_to=(message.reply_to or 0) if is_response else 0,
                images=tuple(file.id for file in message.attachments if file.id in image_ids),
                is_checked=not is_response and answers.is_checked(message),
                expires_at=message.expires_at,
            )
        )
    return prompt_messages


def list_answered(entries: Sequence[Message], companion: str) -> list[Message]:
    """Return the entries before the first user message that no response has answered yet."""
    replies = (
        entry.reply_to or 0
        for entry in entries
        if entry.sender == companion and _get_end(entry) != "failed"
    )
    answered_upto = max(replies, default=0)
    for index, entry in enumerate(entries):
        if entry.seq > answered_upto and entry.sender != companion and is_message(entry):
            return list(entries[:index])
    return list(entries)


class _Answers:
    """Which of a session's messages the companion has accepted or refused.

    A response answers all user messages since the previous one, and replies to the last of them.
    """

    def __init__(self, messages: Sequence[Message], companion: str) -> None:
        self._companion = companion
        # Of each refused exchange: the seqs of the last message, the last one before, the response.
        self._refused: list[tuple[int, int, int]] = []
        self._accepted_upto = upto = 0
        responses = [each for each in messages if each.sender == companion and each.reply_to]
        for response in sorted(responses, key=lambda each: each.reply_to or 0):
            match _get_end(response):
                case "failed":
                    continue  # the next response answers these messages
                case "refused":
                    self._refused.append((response.reply_to or 0, upto, response.seq))
                case _:
                    self._accepted_upto = response.reply_to or 0
            upto = response.reply_to or 0

    def is_left_out(self, message: Message) -> bool:
        """Return whether no model may get the message."""
        if message.sender == self._companion:
            return _get_end(message) in ("failed", "refused")
        index = bisect.bisect_left(self._refused, (message.seq,))
        if index == len(self._refused):
            return False
        if message.seq > self._refused[index][1]:
            return True
        # An edited message is checked with each later one, so it may be what was refused.
        return 0 < message.edited_seq < self._refused[-1][2]

    def is_checked(self, message: Message) -> bool:
        """Return whether a response has accepted the text of a user message."""
        return message.seq <= self._accepted_upto and not message.edited_seq


def _get_end(message: Message) -> str:
    return message.ai.end if message.ai is not None else "done"


def _choose_images(messages: Sequence[Message], companion: str, images_max: int) -> set[str]:
    ids = [
        file.id
        for message in reversed(messages)
        if message.sender != companion
        for file in reversed(message.attachments)
        if file.type in RASTER_TYPES
    ]
    return set(ids[:images_max])


def compute_room(persona: Companion, summary: SessionSummary | None, notes: str = "") -> int:
    """Return how many tokens of the context remain for messages.

    The prompt, the notes, the summary and the response use the other tokens.
    """
    used = estimate_tokens(persona.prompt + notes) + persona.answer_tokens_max
    if summary is not None:
        used += estimate_tokens(REMEMBERED + summary.text)
    return max(ROOM_TOKENS_MIN, persona.context_tokens_max - used)


def build_context(
    persona: Companion,
    summary: SessionSummary | None,
    prompt_messages: Sequence[PromptMessage],
    seq: int,
    notes: str = "",
) -> Context | None:
    """Build the model's input for answering message `seq`; None if nothing is left to answer.

    `notes` is the companion's memory from earlier sessions.

    Guarantees:
        Message `seq` is included, truncated if necessary, and as many earlier messages as fit.
        The first message is from the user, and the roles alternate.
    """
    upto = 0 if summary is None else summary.upto
    candidates = [
        message
        for message in prompt_messages
        if message.seq > upto and (message.role == "assistant" or message.seq <= seq)
    ]
    # Leave out responses to message `seq` and to later messages.
    candidates = sorted(
        (earlier for earlier in candidates if earlier.reply_to < seq),
        key=lambda message: message.order,
    )
    if not candidates or candidates[-1].role == "assistant":
        return None  # all messages since the last response have been deleted
    room = compute_room(persona, summary, notes)
    selected: list[PromptMessage] = []
    for candidate in reversed(candidates):
        tokens = candidate.tokens
        if tokens > room and not selected:
            candidate = dataclasses.replace(candidate, text=cut_to_tokens(candidate.text, room))
            tokens = room
        if tokens > room:
            break
        room -= tokens
        selected.append(candidate)
    selected.reverse()
    messages, images = _merge_roles(selected)
    system = (
        persona.prompt
        + notes
        + (REMEMBERED + summary.text if summary is not None and summary.text else "")
    )
    tokens = estimate_tokens(system) + sum(estimate_tokens(message.text) for message in messages)
    tokens += IMAGE_TOKENS * sum(map(len, images))
    return Context(system, messages, tokens, images)


def _merge_roles(
    prompt_messages: Sequence[PromptMessage],
) -> tuple[tuple[ModelMessage, ...], tuple[tuple[str, ...], ...]]:
    """Merge consecutive messages with the same role; drop all before the first user message.

    Return the merged messages, and the attachment ids of the images in each.
    """
    merged: list[ModelMessage] = []
    images: list[tuple[str, ...]] = []
    for message in prompt_messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = dataclasses.replace(
                merged[-1],
                text=f"{merged[-1].text}\n\n{message.text}",
                is_checked=merged[-1].is_checked and message.is_checked,
            )
            images[-1] += message.images
        elif merged or message.role == "user":
            merged.append(ModelMessage(message.role, message.text, is_checked=message.is_checked))
            images.append(message.images)
    return tuple(merged), tuple(images)


def choose_old(
    prompt_messages: Sequence[PromptMessage],
    summary: SessionSummary | None,
    room: int,
    messages_max: int,
) -> list[PromptMessage]:
    """Return the oldest messages, which must be summarized.

    Return none if the unsummarized messages use at most `FULL_SHARE` of `room` (tokens), and there
    are at most `FULL_SHARE` * `messages_max` of them.
    """
    upto = 0 if summary is None else summary.upto
    unsummarized = [message for message in prompt_messages if message.seq > upto]
    tokens, count = sum(message.tokens for message in unsummarized), len(unsummarized)
    if tokens <= room * FULL_SHARE and count <= messages_max * FULL_SHARE:
        return []
    old: list[PromptMessage] = []
    for unread in unsummarized:
        if count <= KEPT_MIN:
            break
        if tokens <= room * KEPT_SHARE and count <= messages_max * KEPT_SHARE:
            break
        old.append(unread)
        tokens, count = tokens - unread.tokens, count - 1
    return old
