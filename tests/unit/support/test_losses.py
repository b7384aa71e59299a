"""After a data loss in Redis the checker permits the documented effects, and no others."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.support.checker import report
from tests.support.story import (
    Answered,
    Asked,
    Delivered,
    Final,
    Kept,
    Line,
    Lost,
    Restarted,
    Scene,
    Shown,
    Stored,
    Story,
    Watermark,
    Withdrawn,
)
from tests.support.storycheck import check_story

replace = msgspec.structs.replace
DEVICES = {"alice": ["alice-0"], "bob": ["bob-0"]}


def entry(seq: int, ref: str, mid: str, body: str = "", **more: object) -> Shown:
    """Return a message from alice."""
    fields = {"seq": seq, "ts": 1_000 + seq, "mid": mid, "sender": "alice", "ref": ref}
    return msgspec.convert({**fields, "kind": "text", "body": body or ref, **more}, Shown)


KEPT, NEW = entry(1, "kept", "m1"), entry(2, "new", "m3")
LOST = entry(2, "lost", "m2")  # acked at seq 2, lost, and sent again: now at seq 3
MOVED = entry(3, "lost", "m4")
LOG = (KEPT, NEW, MOVED)


def delivered(t: float, device: str, shown: Shown) -> Delivered:
    """Return the delivery of an entry to a device."""
    return Delivered(t, device.partition("-")[0], device, "duo", shown)


def answered(t: float, shown: Shown) -> Answered:
    """Return an ack to alice's device."""
    place = (shown.seq, shown.ts, shown.mid, "alice-0")
    return Answered(t, "alice", "duo", shown.ref, "", *place)


@pytest.fixture
def story() -> Story:
    """A valid story: Redis loses one entry, which is sent again after a new one."""
    scenes: list[Scene] = [
        *(Asked(0.1, "alice", "duo", ref, "send", ref) for ref in ("kept", "lost", "new")),
        answered(1.0, KEPT),
        answered(1.1, LOST),
        delivered(1.2, "alice-0", KEPT),
        delivered(1.2, "alice-0", LOST),
        delivered(1.2, "bob-0", KEPT),
        delivered(1.2, "bob-0", LOST),
        Watermark(1.3, "alice", "alice-0", "duo", 1),
        Lost(2.0, "cut log"),
        Restarted(3.0, "alice", "alice-0", True),
        Restarted(3.0, "bob", "bob-0", True),
        Withdrawn(3.1, "alice", "alice-0", "duo", (2,), 1),
        Withdrawn(3.1, "bob", "bob-0", "duo", (2,), 1),
        answered(3.2, NEW),
        *(
            delivered(3.3, device, shown)
            for device in ("alice-0", "bob-0")
            for shown in (NEW, MOVED)
        ),
        Stored("duo", LOG),
    ]
    for user, (device,) in DEVICES.items():
        scenes += [
            Final(user, "duo", LOG),
            Kept(user, device, "duo", LOG),
            Line(user, device, "duo", 3, 0),
        ]
    return Story({"duo": ["alice", "bob"]}, DEVICES, scenes)


def index_of(story: Story, kind: type, **wanted: object) -> int:
    """Return the index of the first scene of a kind with these fields."""
    return next(
        at
        for at, scene in enumerate(story.scenes)
        if isinstance(scene, kind) and all(getattr(scene, k) == v for k, v in wanted.items())
    )


def test_lost_entry_that_is_sent_and_delivered_again_passes(story: Story) -> None:
    """Losses that the guarantees permit are not violations."""
    assert not check_story(story), report(check_story(story))


def test_lost_change_of_a_lost_message_may_be_missing(story: Story) -> None:
    """The change of a lost message may be refused when it is sent again."""
    asked = Asked(1.1, "alice", "duo", "edit", "edit", "better", target=2)
    change = Answered(1.2, "alice", "duo", "edit", "", 3, 1_003, "m9", "alice-0")
    story.scenes[0:0] = [asked, change]

    assert not check_story(story), report(check_story(story))


def never_send_again(story: Story) -> None:
    """The lost entry is never sent again."""
    log = LOG[:2]
    for at, scene in enumerate(story.scenes):
        match scene:
            case Stored() | Final() | Kept():
                story.scenes[at] = replace(scene, entries=log)
            case Line():
                story.scenes[at] = replace(scene, top=2)
    story.scenes = [s for s in story.scenes if not (isinstance(s, Delivered) and s.entry == MOVED)]


def refuse_again(story: Story) -> None:
    """The lost entry is refused when a user who is still a member sends it again."""
    never_send_again(story)
    story.scenes.append(Answered(3.4, "alice", "duo", "lost", "not_found", device="alice-0"))


def test_lost_message_of_a_user_who_left_may_be_refused(story: Story) -> None:
    """A former member cannot send; a refusal to a member is a violation."""
    refuse_again(story)
    left = replace(entry(3, "bye", "m8"), kind="member", user="alice", role="")
    at = index_of(story, Stored)
    story.scenes[at] = replace(story.scenes[at], entries=(*LOG[:2], left))

    assert "P1" not in {violation.rule for violation in check_story(story)}


@pytest.mark.parametrize("deleted", [True, False])
def test_lost_change_of_a_message_that_was_deleted_may_be_refused(
    story: Story, deleted: bool
) -> None:
    """A change that is sent again applies to the current message, which is deleted."""
    asked = Asked(1.1, "alice", "duo", "edit", "edit", "better", target=1)
    change = Answered(1.2, "alice", "duo", "edit", "", 3, 1_003, "m9", "alice-0")
    story.scenes[0:0] = [asked, change]
    story.scenes.append(Answered(3.4, "alice", "duo", "edit", "conflict", device="alice-0"))
    at = index_of(story, Stored)
    first = replace(LOG[0], deleted=deleted, body="" if deleted else LOG[0].body)
    story.scenes[at] = replace(story.scenes[at], entries=(first, *LOG[1:]))

    found = "P1" in {violation.rule for violation in check_story(story)}

    assert found is not deleted


def test_entry_withdrawn_without_a_loss_may_be_delivered_again(story: Story) -> None:
    """A user removed in a new epoch reads the chat again after a return."""
    redelivered = [
        scene for scene in story.scenes if isinstance(scene, Delivered) and scene.t > 3.0
    ]
    story.scenes = [scene for scene in story.scenes if not isinstance(scene, Lost)]
    at = story.scenes.index(redelivered[-1]) + 1
    new_epoch = Restarted(3.4, "bob", "bob-0", True)
    story.scenes[at:at] = [new_epoch, Withdrawn(3.5, "bob", "bob-0", "duo", (3,), 2)]
    story.scenes.insert(at + 2, delivered(3.6, "bob-0", MOVED))

    found = [violation for violation in check_story(story) if "twice" in violation.text]

    assert found == []


def lose_stored_entry(story: Story) -> None:
    """A device got `stored` for a seq that another entry has now."""
    mark = index_of(story, Watermark)
    story.scenes[mark] = Watermark(1.3, "alice", "alice-0", "duo", 2)


def ack_lost_seq_after_the_reset(story: Story) -> None:
    """A device gets an ack for a lost seq after its reset."""
    story.scenes[index_of(story, Answered, ref="lost")] = answered(3.4, LOST)


def deliver_lost_entry_after_the_reset(story: Story) -> None:
    """A device receives a lost entry after its reset."""
    story.scenes.insert(index_of(story, Stored), delivered(3.4, "bob-0", LOST))


def deliver_twice_without_withdrawal(story: Story) -> None:
    """A device receives an entry again that it never withdrew."""
    story.scenes.insert(index_of(story, Stored), delivered(3.4, "bob-0", KEPT))


def withdraw_without_a_data_loss(story: Story) -> None:
    """The same story, but Redis lost nothing."""
    story.scenes.pop(index_of(story, Lost))


FAULTS: list[tuple[str, Callable[[Story], None]]] = [
    ("P1", never_send_again),
    ("P1", refuse_again),
    ("P1", lose_stored_entry),
    ("P1", ack_lost_seq_after_the_reset),
    ("P3", deliver_lost_entry_after_the_reset),
    ("P4", deliver_twice_without_withdrawal),
    ("E", withdraw_without_a_data_loss),
    ("P1", withdraw_without_a_data_loss),
]


@pytest.mark.parametrize(("rule", "inject"), FAULTS, ids=[inject.__name__ for _, inject in FAULTS])
def test_loss_does_not_permit_injected_fault(
    story: Story, rule: str, inject: Callable[[Story], None]
) -> None:
    """Losses that the guarantees do not permit are reported."""
    inject(story)

    assert rule in {violation.rule for violation in check_story(story)}
