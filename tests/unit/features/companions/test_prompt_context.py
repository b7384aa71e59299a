"""The context of a session that a model gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import Seq, UserId
from chatserver.features.companions.model import Companion, Memory
from chatserver.features.companions.providers.interface import Image, ModelMessage
from chatserver.features.companions.providers.token_estimates import estimate_tokens
from chatserver.features.companions.worker.prompt_context import (
    IMAGE_TOKENS,
    PromptMessage,
    build_context,
    build_prompt_messages,
    choose_old,
    compute_room,
)
from chatserver.protocol.frames import Ai, Attachment, Message

ADA = CompanionId(UserId("ai-ada"))


def persona(context: int = 1_000, answer: int = 100) -> Companion:
    """A companion with so much room."""
    return Companion(ADA, 1, "Ada", "Be kind.", "scripted", "echo", context, answer, 0)


def user(seq: int, text: str = "hello") -> PromptMessage:
    """A message of the user."""
    return PromptMessage(seq, "user", text)


def ada(seq: int, reply_to: int, text: str = "yes") -> PromptMessage:
    """A message of the companion."""
    return PromptMessage(seq, "assistant", text, reply_to)


def message(seq: int, sender: str, body: str, **more: object) -> Message:
    """An entry of the chat."""
    return Message(seq, seq, "c", f"M{seq}", sender, f"r{seq}", "text", body, **more)  # type: ignore[arg-type]  # fields of it


def test_context_leaves_out_what_is_nothing_that_was_said() -> None:
    """Deleted messages, changes, empty ones, and words about a failure."""
    said = build_prompt_messages(
        [
            message(1, "alice", "hello"),
            message(2, "alice", "", deleted=True),
            message(3, ADA, "Sorry", ai=Ai("m", "failed", code="unavailable")),
            Message(4, 4, "c", "M", "alice", "r", "edit", "other", target=1),
            message(5, ADA, "Hi", reply_to=1, ai=Ai("m")),
        ],
        ADA,
    )

    assert said == [user(1), ada(5, 1, "Hi")]


def test_context_answer_stands_behind_what_it_answers() -> None:
    """Also where the user had gone on meanwhile: the model sees what was answered, and what not."""
    context = build_context(persona(), None, [user(1, "a"), user(2, "b"), ada(3, 1, "to a")], 2)

    assert context is not None
    assert context.messages == (
        ModelMessage("user", "a"),
        ModelMessage("assistant", "to a"),
        ModelMessage("user", "b"),
    )


def test_context_of_what_was_taken_back_is_none() -> None:
    """Nothing was asked since the last answer."""
    assert build_context(persona(), None, [user(1), ada(2, 1)], 3) is None
    assert build_context(persona(), None, [], 1) is None


def test_context_later_messages_wait_for_their_own_turn() -> None:
    """An answer to the message at a seq knows nothing of what came after it."""
    said = [user(1, "a"), ada(2, 1), user(3, "b"), user(4, "c"), ada(5, 4, "to c")]
    context = build_context(persona(), None, said, 3)

    assert context is not None and context.messages[-1] == ModelMessage("user", "b")


def test_context_has_the_memory_in_place_of_what_it_cites() -> None:
    """Summarized messages are not in the context twice."""
    memory = Memory(Seq(1), Seq(2), "Alice likes tea", 1)
    context = build_context(persona(), memory, [user(1, "old"), ada(2, 1), user(3, "new")], 3)

    assert context is not None
    assert context.system.startswith("Be kind.") and context.system.endswith("Alice likes tea")
    assert context.messages == (ModelMessage("user", "new"),)


@st.composite
def conversations(draw: st.DrawFn) -> list[PromptMessage]:
    """Messages of a user, some of them answered, at once or later."""
    found: list[PromptMessage] = []
    open_: list[int] = []
    for seq in range(1, draw(st.integers(1, 25))):
        if open_ and draw(st.booleans()):
            found.append(ada(seq, draw(st.sampled_from(open_)), draw(st.text("xy ", max_size=90))))
        else:
            open_.append(seq)
            found.append(user(seq, draw(st.text("ab ", min_size=1, max_size=90))))
    return found


@given(said=conversations(), room=st.integers(256, 600))
def test_context_fits_takes_turns_and_has_the_question(
    said: list[PromptMessage], room: int
) -> None:
    """Within the room, from the user's side on, and the last thing is what is to be answered."""
    asked = [one.seq for one in said if one.role == "user"]
    if not asked:
        return
    context = build_context(persona(room), None, said, asked[-1])
    if context is None:
        return

    roles = [one.role for one in context.messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    tokens = sum(estimate_tokens(one.text) for one in context.messages)
    assert tokens <= compute_room(persona(room), None)
    assert next(one.text for one in said if one.seq == asked[-1]) in context.messages[-1].text


@given(said=conversations(), upto=st.integers(0, 10), room=st.integers(64, 300))
def test_context_what_is_summed_up_are_the_oldest_that_no_summary_has(
    said: list[PromptMessage], upto: int, room: int
) -> None:
    """Without a hole; and what stays is short enough, or hardly anything."""
    memory = Memory(Seq(1), Seq(upto), "x", 1) if upto else None
    old = choose_old(said, memory, room, 8)
    left = [one for one in said if one.seq > upto]

    assert old == left[: len(old)]
    stays = left[len(old) :]
    if old:
        assert len(stays) <= 2 or sum(one.tokens for one in stays) <= room * 0.4
    else:
        assert sum(one.tokens for one in left) <= room * 0.75 or len(left) <= 2


def test_context_has_the_newest_images_and_names_the_others() -> None:
    """Only types that the APIs take, only the user's, and only as many as the model takes."""
    files = {
        name: Attachment(name, f"{name}.bin", kind, 10)
        for name, kind in (("a", "image/png"), ("b", "image/jpeg"), ("c", "image/svg+xml"))
    }
    entries = [
        message(1, "alice", "", attachments=[files["a"]]),
        message(2, "alice", "look", attachments=[files["b"], files["c"]]),
    ]
    said = build_prompt_messages(entries, ADA, 1)
    context = build_context(persona(4_000), None, said, 2)

    assert [one.images for one in said] == [(), ("b",)]
    assert said[0].text == "[file: a.bin]"
    assert context is not None and context.image_ids == ["b"]
    assert context.tokens > IMAGE_TOKENS
    image = Image("image/jpeg", b"jpeg")
    (found,) = context.build_messages({"b": image})
    assert (found.images, found.text) == ((image,), "[file: a.bin]\n\nlook")
    (missing,) = context.build_messages({})
    assert missing.images == () and missing.text.endswith("[an image is not available]")


def test_context_has_the_notes_of_earlier_sessions_within_its_bound() -> None:
    """They follow the prompt and take room from the messages."""
    notes = "\n\n<notes>\n- Name: Lin\n</notes>"
    context = build_context(persona(), None, [user(1)], 1, notes)

    assert context is not None and context.system == f"Be kind.{notes}"
    assert compute_room(persona(), None, notes) == compute_room(persona(), None) - (
        estimate_tokens(f"Be kind.{notes}") - estimate_tokens("Be kind.")
    )
