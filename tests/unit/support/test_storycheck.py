"""The story checker accepts valid stories and reports each injected fault by its guarantee."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import TypeVar, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.checker import report
from tests.support.story import (
    Answered,
    Asked,
    Delivered,
    Final,
    Kept,
    Kind,
    Line,
    Restarted,
    Scene,
    Shown,
    Stored,
    Story,
    dump_story,
    load_story,
)
from tests.support.storycheck import check_story, find_undelivered_entries
from tests.unit.support.injected_faults import (
    FAULTS,
    all_of,
    change,
    change_entries,
    delivery_in,
    periods_of,
    remove_reaction,
    undo_deletion,
    undo_edit,
)
from tests.unit.support.valid_story import CHOICES, make_story

replace = msgspec.structs.replace
S = TypeVar("S")


@functools.cache
def _make_valid_story() -> Story:
    return make_story(5, random.Random(3).choices(CHOICES, k=300))


@pytest.fixture
def story() -> Story:
    """A copy of a valid story with many scenes of every kind."""
    original = _make_valid_story()
    return Story(original.chats, original.devices, list(original.scenes))


def rules_of(story: Story) -> set[str]:
    """Return the names of the guarantees that the story breaks."""
    return {violation.rule for violation in check_story(story)}


# valid stories


@given(seed=st.integers(0, 2**32), choices=st.lists(st.sampled_from(CHOICES), max_size=80))
def test_check_valid_story_passes(seed: int, choices: list[str]) -> None:
    """No story of a correct server is refused."""
    violations = check_story(make_story(seed, choices))

    assert not violations, report(violations)


def test_check_sample_story_has_every_action(story: Story) -> None:
    """The story that the fault tests start from is valid and contains every action."""
    assert not check_story(story), report(check_story(story))
    assert {a.kind for a in all_of(story, Asked)} == set(get_args(Kind))
    assert any(len(periods) > 1 for periods in periods_of(story).of.values()), (
        "no user joined again"
    )


@pytest.mark.parametrize(
    ("kind", "is_valid"), [("remove", True), ("leave", True), ("update", False)]
)
def test_check_removal_between_a_leave_and_an_invite_needs_no_entry(
    kind: Kind, is_valid: bool
) -> None:
    """The user was not a member at that time; an answered update must be in the log."""
    entries = (
        Shown(1, 1_010, "m-1", "bob", "r1", "member", user="bob", role=""),
        Shown(2, 1_020, "m-2", "alice", "r2", "member", user="bob", role="member"),
    )
    story = Story({"group": ["alice", "bob"]}, {}, [Stored("group", entries)])
    requests: list[tuple[str, str, Kind, str]] = [
        ("bob", "r1", "leave", ""),
        ("alice", "r2", "invite", "bob"),
        ("alice", "r3", kind, "bob"),
    ]
    for user, ref, request_kind, subject in requests:
        story.scenes.append(Asked(1.0, user, "group", ref, request_kind, subject=subject))
        story.scenes.append(Answered(2.0, user, "group", ref))

    assert ("P1" not in rules_of(story)) is is_valid


def test_check_answered_removal_without_an_entry_is_lost() -> None:
    """The log contains no removal although it was answered and the user was a member."""
    entry = Shown(1, 1_010, "m-1", "alice", "r1", "text", "hello")
    scenes: list[Scene] = [
        Stored("group", (entry,)),
        Asked(1.0, "alice", "group", "r1", "send", "hello"),
        Answered(2.0, "alice", "group", "r1", "", 1, 1_010, "m-1"),
        Asked(3.0, "alice", "group", "r2", "remove", subject="bob"),
        Answered(4.0, "alice", "group", "r2"),
    ]
    story = Story({"group": ["alice", "bob"]}, {}, scenes)

    assert "P1" in rules_of(story)


@pytest.mark.parametrize(
    ("device", "is_reset", "is_valid"),
    [("bob-raw", True, True), ("bob-raw", False, False), ("bob-0", True, False)],
)
def test_check_raw_device_may_get_a_removal_again_after_a_reset(
    device: str, is_reset: bool, is_valid: bool
) -> None:
    """The snapshot omits the chat that the user left; only a device with a log can compare."""
    entries = (
        Shown(1, 1_010, "m-1", "alice", "r1", "text", "hello"),
        Shown(2, 1_020, "m-2", "bob", "r2", "member", user="bob", role=""),
    )
    scenes: list[Scene] = [Stored("group", entries)]
    scenes += [Delivered(1.0, "bob", device, "group", entry) for entry in entries]
    if is_reset:
        scenes.append(Restarted(2.0, "bob", device, True))
    scenes += [Delivered(3.0, "bob", device, "group", entry) for entry in entries]
    story = Story({"group": ["alice", "bob"]}, {"bob": [device]}, scenes)

    is_repeat_reported = any("twice" in violation.text for violation in check_story(story))
    assert is_repeat_reported is not is_valid


def test_story_dumped_and_loaded_is_equal(story: Story) -> None:
    """A story saved after a failure can be checked again."""
    assert load_story(dump_story(story)) == story


def test_find_undelivered_entries_reports_a_missing_delivery(story: Story) -> None:
    """Tests use it to wait until every entry is delivered."""
    logs = {scene.chat: scene.entries for scene in all_of(story, Stored)}
    assert not find_undelivered_entries(story, logs)

    story.scenes.remove(delivery_in(story))

    assert [violation.rule for violation in find_undelivered_entries(story, logs)] == ["P4"]


def test_check_device_that_started_over_may_read_instead_of_receive(story: Story) -> None:
    """A device that was disconnected for too long reads its chats instead of events."""
    delivery = delivery_in(story)
    change(story, delivery, Restarted(delivery.t, delivery.user, delivery.device, False),
           replace(delivery, is_read=True))  # fmt: skip

    assert not check_story(story), report(check_story(story))


# injected faults


@pytest.mark.parametrize(("rule", "inject"), FAULTS, ids=[inject.__name__ for _, inject in FAULTS])
def test_check_injected_fault_is_reported(
    story: Story, rule: str, inject: Callable[[Story], None]
) -> None:
    """Each fault is reported with the guarantee that it breaks."""
    inject(story)

    assert rule in rules_of(story)


@pytest.mark.parametrize("where", [Stored, Final, Kept])
@pytest.mark.parametrize("transform", [undo_edit, remove_reaction, undo_deletion])
def test_check_message_without_its_change_is_reported(
    story: Story,
    where: type[Stored] | type[Final] | type[Kept],
    transform: Callable[[tuple[Shown, ...]], tuple[Shown, ...]],
) -> None:
    """An unapplied change is found in DynamoDB, in histories and on devices."""
    change_entries(story, where, transform)

    assert rules_of(story) == {"P10"}


@pytest.mark.parametrize("kind", [Stored, Final, Line, Answered])
def test_check_story_without_its_end_is_void(story: Story, kind: type[Scene]) -> None:
    """An incomplete story proves nothing."""
    story.scenes = [scene for scene in story.scenes if not isinstance(scene, kind)]

    assert "VOID" in rules_of(story)
