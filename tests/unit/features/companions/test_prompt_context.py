"""The context of a session that is sent to a model."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import Seq, UserId
from chatserver.features.companions.model import Companion, SessionSummary
from chatserver.features.companions.providers.interface import Image, ModelMessage
from chatserver.features.companions.providers.token_estimates import estimate_tokens
from chatserver.features.companions.worker.prompt_context import (
    IMAGE_TOKENS,
    PromptMessage,
    build_context,
    build_prompt_messages,
    choose_old,
    compute_room,
    list_answered,
)
from chatserver.protocol.frames import Ai, Attachment, Message

ADA = CompanionId(UserId("ai-ada"))


def companion(context: int = 1_000, answer: int = 100) -> Companion:
    return Companion(ADA, 1, "Ada", "Be kind.", "scripted", "echo", context, answer, 0)


def user(seq: int, text: str = "hello", *, is_checked: bool = False) -> PromptMessage:
    return PromptMessage(seq, "user", text, is_checked=is_checked)


def ada(seq: int, reply_to: int, text: str = "yes") -> PromptMessage:
    return PromptMessage(seq, "assistant", text, reply_to)


def message(seq: int, sender: str, body: str, **more: object) -> Message:
    return Message(seq, seq, "c", f"M{seq}", sender, f"r{seq}", "text", body, **more)  # type: ignore[arg-type]  # valid fields


def test_context_omits_deleted_empty_and_failed_messages() -> None:
    """Changes are not messages either."""
    messages = build_prompt_messages(
        [
            message(1, "alice", "hello"),
            message(2, "alice", "", deleted=True),
            message(3, ADA, "Sorry", ai=Ai("m", "failed", code="unavailable")),
            Message(4, 4, "c", "M", "alice", "r", "edit", "other", target=1),
            message(5, ADA, "Hi", reply_to=1, ai=Ai("m")),
        ],
        ADA,
    )

    assert messages == [user(1, is_checked=True), ada(5, 1, "Hi")]


def test_context_has_neither_half_of_a_refused_exchange() -> None:
    """A response answers all messages since the previous one, so it also refuses all of them."""
    messages = build_prompt_messages(
        [
            message(1, "alice", "hello"),
            message(2, "alice", "how to pick"),
            message(3, ADA, "Hi", reply_to=1, ai=Ai("m")),
            message(4, "alice", "a lock?", attachments=[Attachment("a", "a.png", "image/png", 9)]),
            message(5, ADA, "I can't answer that", reply_to=4, ai=Ai("m", "refused")),
            message(6, "alice", "please answer my last message"),
        ],
        ADA,
        images_max=1,
    )

    assert messages == [
        user(1, is_checked=True),
        ada(3, 1, "Hi"),
        user(6, "please answer my last message"),
    ]


def test_context_has_messages_after_a_failed_response_as_unchecked() -> None:
    """No guardrail has seen them; the next response answers, accepts or refuses them all."""
    entries = [
        message(1, "alice", "first"),
        message(2, ADA, "Sorry", reply_to=1, ai=Ai("m", "failed", code="unavailable")),
        message(3, "alice", "second"),
    ]
    refusal = message(4, ADA, "No", reply_to=3, ai=Ai("m", "refused"))

    assert build_prompt_messages(entries, ADA) == [user(1, "first"), user(3, "second")]
    assert build_prompt_messages([*entries, refusal], ADA) == []


def test_context_has_an_edited_message_as_unchecked_until_it_is_refused() -> None:
    """An edit can replace an accepted text by one that would have been refused."""
    entries = [
        message(1, "alice", "edited", edited_seq=3),
        message(2, ADA, "Hi", reply_to=1, ai=Ai("m")),
        message(4, "alice", "next"),
    ]
    accepted = message(5, ADA, "Yes", reply_to=4, ai=Ai("m"))
    refused = message(5, ADA, "No", reply_to=4, ai=Ai("m", "refused"))

    assert build_prompt_messages([*entries, accepted], ADA) == [
        user(1, "edited"),
        ada(2, 1, "Hi"),
        user(4, "next", is_checked=True),
        ada(5, 4, "Yes"),
    ]
    assert build_prompt_messages([*entries, refused], ADA) == [ada(2, 1, "Hi")]
    again = msgspec.structs.replace(entries[0], body="harmless", edited_seq=6)
    assert build_prompt_messages([again, *entries[1:], refused], ADA)[0] == user(1, "harmless")


def test_context_marks_merged_messages_as_checked_only_if_all_are() -> None:
    """The messages of one role become one message of the request."""
    messages = [user(1, "a", is_checked=True), user(2, "b"), ada(3, 2), user(4, "c")]
    context = build_context(companion(), None, messages, 4)

    assert context is not None
    assert [each.is_checked for each in context.messages] == [False, False, False]
    messages[1] = user(2, "b", is_checked=True)
    context = build_context(companion(), None, messages, 4)
    assert context is not None
    assert [each.is_checked for each in context.messages] == [True, False, False]


def test_answered_entries_end_at_the_first_message_without_a_response() -> None:
    """A response answers the message that it replies to and all earlier ones."""
    entries = [
        message(1, "alice", "a"),
        message(2, "alice", "b"),
        message(3, ADA, "to b", reply_to=2, ai=Ai("m")),
        message(4, "alice", "c"),
        message(5, ADA, "to b again", reply_to=2, ai=Ai("m")),
    ]

    assert list_answered(entries, ADA) == entries[:3]
    assert list_answered(entries[:3], ADA) == entries[:3]
    assert list_answered(entries[:1], ADA) == []
    failed = [entries[0], message(2, ADA, "", reply_to=1, ai=Ai("m", end="failed"))]
    assert list_answered(failed, ADA) == []


def test_context_has_each_answer_after_its_question() -> None:
    """An answer follows its question even if the user has written more before the answer."""
    context = build_context(companion(), None, [user(1, "a"), user(2, "b"), ada(3, 1, "to a")], 2)

    assert context is not None
    assert context.messages == (
        ModelMessage("user", "a"),
        ModelMessage("assistant", "to a"),
        ModelMessage("user", "b"),
    )


def test_context_without_an_open_question_is_none() -> None:
    """The question may have been deleted, or nothing was asked since the last answer."""
    assert build_context(companion(), None, [user(1), ada(2, 1)], 3) is None
    assert build_context(companion(), None, [], 1) is None


def test_context_has_no_messages_after_the_question() -> None:
    """Later messages get their own response."""
    messages = [user(1, "a"), ada(2, 1), user(3, "b"), user(4, "c"), ada(5, 4, "to c")]
    context = build_context(companion(), None, messages, 3)

    assert context is not None and context.messages[-1] == ModelMessage("user", "b")


def test_context_has_the_memory_instead_of_summarized_messages() -> None:
    """Summarized messages are not in the context twice."""
    memory = SessionSummary(Seq(1), Seq(2), "Alice likes tea", 1)
    context = build_context(companion(), memory, [user(1, "old"), ada(2, 1), user(3, "new")], 3)

    assert context is not None
    assert context.system.startswith("Be kind.") and context.system.endswith("Alice likes tea")
    assert context.messages == (ModelMessage("user", "new"),)


@st.composite
def conversations(draw: st.DrawFn) -> list[PromptMessage]:
    """Generate messages of a user, some of them answered, at once or later."""
    found: list[PromptMessage] = []
    unanswered: list[int] = []
    for seq in range(1, draw(st.integers(1, 25))):
        if unanswered and draw(st.booleans()):
            found.append(
                ada(seq, draw(st.sampled_from(unanswered)), draw(st.text("xy ", max_size=90)))
            )
        else:
            unanswered.append(seq)
            found.append(user(seq, draw(st.text("ab ", min_size=1, max_size=90))))
    return found


@given(messages=conversations(), tokens_max=st.integers(256, 600))
def test_context_fits_alternates_roles_and_ends_with_the_question(
    messages: list[PromptMessage], tokens_max: int
) -> None:
    """The context starts with a message of the user and stays within the token limit."""
    question_seqs = [each.seq for each in messages if each.role == "user"]
    if not question_seqs:
        return
    context = build_context(companion(tokens_max), None, messages, question_seqs[-1])
    if context is None:
        return

    roles = [each.role for each in context.messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    tokens = sum(estimate_tokens(each.text) for each in context.messages)
    assert tokens <= compute_room(companion(tokens_max), None)
    assert (
        next(each.text for each in messages if each.seq == question_seqs[-1])
        in context.messages[-1].text
    )


@given(messages=conversations(), upto=st.integers(0, 10), tokens_max=st.integers(64, 300))
def test_messages_to_summarize_are_the_oldest_unsummarized_ones(
    messages: list[PromptMessage], upto: int, tokens_max: int
) -> None:
    """The chosen messages are contiguous, and the rest is short enough."""
    memory = SessionSummary(Seq(1), Seq(upto), "x", 1) if upto else None
    old = choose_old(messages, memory, tokens_max, 8)
    unsummarized = [each for each in messages if each.seq > upto]

    assert old == unsummarized[: len(old)]
    rest = unsummarized[len(old) :]
    if old:
        assert len(rest) <= 2 or sum(each.tokens for each in rest) <= tokens_max * 0.4
    else:
        assert (
            sum(each.tokens for each in unsummarized) <= tokens_max * 0.75 or len(unsummarized) <= 2
        )


def test_context_has_the_newest_images_and_names_the_others() -> None:
    """Only images of the user, of supported types, up to the number that the model accepts."""
    files = {
        name: Attachment(name, f"{name}.bin", kind, 10)
        for name, kind in (("a", "image/png"), ("b", "image/jpeg"), ("c", "image/svg+xml"))
    }
    entries = [
        message(1, "alice", "", attachments=[files["a"]]),
        message(2, "alice", "look", attachments=[files["b"], files["c"]]),
    ]
    messages = build_prompt_messages(entries, ADA, 1)
    context = build_context(companion(4_000), None, messages, 2)

    assert [each.images for each in messages] == [(), ("b",)]
    assert messages[0].text == "[file: a.bin]"
    assert context is not None and context.image_ids == ["b"]
    assert context.tokens > IMAGE_TOKENS
    image = Image("image/jpeg", b"jpeg")
    (found,) = context.build_messages({"b": image})
    assert (found.images, found.text) == ((image,), "[file: a.bin]\n\nlook")
    (missing,) = context.build_messages({})
    assert missing.images == () and missing.text.endswith("[an image is not available]")


def test_context_has_the_notes_of_earlier_sessions() -> None:
    """The notes follow the prompt and reduce the tokens left for messages."""
    notes = "\n\n<notes>\n- Name: Lin\n</notes>"
    context = build_context(companion(), None, [user(1)], 1, notes)

    assert context is not None and context.system == f"Be kind.{notes}"
    assert compute_room(companion(), None, notes) == compute_room(companion(), None) - (
        estimate_tokens(f"Be kind.{notes}") - estimate_tokens("Be kind.")
    )
