"""The checker of stories passes lawful ones and names each planted fault by its promise."""

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
    Final,
    Kept,
    Kind,
    Line,
    Scene,
    Shown,
    StartedOver,
    Stored,
    Story,
    Told,
    dump_story,
    load_story,
)
from tests.support.storycheck import check_story, find_untold
from tests.unit.support.good_story import CHOICES, tell
from tests.unit.support.planted_faults import (
    FAULTS,
    a_told,
    all_of,
    change,
    change_entries,
    forget_edit,
    forget_reaction,
    revive,
    stays_of,
)

replace = msgspec.structs.replace
S = TypeVar("S")


@functools.cache
def _tell_good() -> Story:
    return tell(5, random.Random(3).choices(CHOICES, k=300))


@pytest.fixture
def good() -> Story:
    """A lawful story with a good deal of everything in it, to be changed."""
    told = _tell_good()
    return Story(told.chats, told.devices, list(told.scenes))


def rules_of(story: Story) -> set[str]:
    """Return the names of the promises that the story breaks."""
    return {violation.rule for violation in check_story(story)}


# ── lawful stories ──────────────────────────────────────────────────────────────────────────────


@given(seed=st.integers(0, 2**32), choices=st.lists(st.sampled_from(CHOICES), max_size=80))
def test_check_lawful_story_passes(seed: int, choices: list[str]) -> None:
    """No story of a server that keeps its promises is refused."""
    violations = check_story(tell(seed, choices))

    assert not violations, report(violations)


def test_check_good_story_has_everything(good: Story) -> None:
    """The story that the mutations start from is lawful and leaves no action out."""
    assert not check_story(good), report(check_story(good))
    assert {a.kind for a in all_of(good, Asked)} == set(get_args(Kind))
    assert any(len(stays) > 1 for stays in stays_of(good).of.values()), "nobody came again"


@pytest.mark.parametrize(
    ("kind", "is_lawful"), [("remove", True), ("leave", True), ("update", False)]
)
def test_check_removal_between_a_leave_and_the_next_invite_changes_nothing(
    kind: Kind, is_lawful: bool
) -> None:
    """The member was out between two adjacent entries; an answered update has to be in the log."""
    entries = (
        Shown(1, 1_010, "m-1", "bob", "r1", "member", user="bob", role=""),
        Shown(2, 1_020, "m-2", "alice", "r2", "member", user="bob", role="member"),
    )
    story = Story({"group": ["alice", "bob"]}, {}, [Stored("group", entries)])
    asks: list[tuple[str, str, Kind, str]] = [
        ("bob", "r1", "leave", ""),
        ("alice", "r2", "invite", "bob"),
        ("alice", "r3", kind, "bob"),
    ]
    for user, ref, wanted, subject in asks:
        story.scenes.append(Asked(1.0, user, "group", ref, wanted, subject=subject))
        story.scenes.append(Answered(2.0, user, "group", ref))

    assert ("P1" not in rules_of(story)) is is_lawful


def test_check_answered_removal_that_left_no_trace_is_lost() -> None:
    """An answered removal of which the log knows nothing is a loss while the member stayed."""
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
    ("device", "is_reset", "is_lawful"),
    [("bob-raw", True, True), ("bob-raw", False, False), ("bob-0", True, False)],
)
def test_check_bare_device_may_be_told_the_end_of_a_stay_again_after_a_reset(
    device: str, is_reset: bool, is_lawful: bool
) -> None:
    """No snapshot names the chat that the user left, so only a device with a log can compare."""
    entries = (
        Shown(1, 1_010, "m-1", "alice", "r1", "text", "hello"),
        Shown(2, 1_020, "m-2", "bob", "r2", "member", user="bob", role=""),
    )
    scenes: list[Scene] = [Stored("group", entries)]
    scenes += [Told(1.0, "bob", device, "group", entry) for entry in entries]
    if is_reset:
        scenes.append(StartedOver(2.0, "bob", device, True))
    scenes += [Told(3.0, "bob", device, "group", entry) for entry in entries]
    story = Story({"group": ["alice", "bob"]}, {"bob": [device]}, scenes)

    is_told_twice = any("twice" in violation.text for violation in check_story(story))
    assert is_told_twice is not is_lawful


def test_story_dumped_and_loaded_is_the_same(good: Story) -> None:
    """A story written after a failure can be judged again."""
    assert load_story(dump_story(good)) == good


def test_untold_names_what_has_not_arrived_yet(good: Story) -> None:
    """Those who wait for the end can ask what is missing, before anything else was read."""
    logs = {scene.chat: scene.entries for scene in all_of(good, Stored)}
    assert not find_untold(good, logs)

    good.scenes.remove(a_told(good))

    assert [violation.rule for violation in find_untold(good, logs)] == ["P4"]


def test_check_device_that_started_over_need_not_be_told_what_it_read(good: Story) -> None:
    """A device that was disconnected for too long reads its chats and starts there."""
    told = a_told(good)
    change(good, told, StartedOver(told.t, told.user, told.device, False),
           replace(told, is_read=True))  # fmt: skip

    assert not check_story(good), report(check_story(good))


# ── planted faults ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("rule", "plant"), FAULTS, ids=[plant.__name__ for _, plant in FAULTS])
def test_check_planted_fault_is_named(
    good: Story, rule: str, plant: Callable[[Story], None]
) -> None:
    """A loss, a repeat, a swap, a stranger's event and the rest are each found."""
    plant(good)

    assert rule in rules_of(good)


@pytest.mark.parametrize("where", [Stored, Final, Kept])
@pytest.mark.parametrize("alter", [forget_edit, forget_reaction, revive])
def test_check_message_that_is_not_as_changed_is_named(
    good: Story,
    where: type[Stored] | type[Final] | type[Kept],
    alter: Callable[[tuple[Shown, ...]], tuple[Shown, ...]],
) -> None:
    """Wherever a change is not applied, it is found."""
    change_entries(good, where, alter)

    assert rules_of(good) == {"P10"}


@pytest.mark.parametrize("kind", [Stored, Final, Line, Answered])
def test_check_story_without_its_end_is_void(good: Story, kind: type[Scene]) -> None:
    """An incomplete story proves nothing."""
    good.scenes = [scene for scene in good.scenes if not isinstance(scene, kind)]

    assert "VOID" in rules_of(good)
