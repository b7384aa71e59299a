"""A story grouped by chat, request and device, and the expected content of its messages."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from tests.support.story import (
    Answered,
    Asked,
    Delivered,
    MembershipPeriods,
    Restarted,
    Shown,
    Skipped,
    Stored,
    Story,
)


@dataclasses.dataclass
class ExpectedMessage:
    """The expected content of a message after all changes."""

    body: str
    deleted: bool = False
    reactions: dict[str, str] = dataclasses.field(default_factory=dict)

    def matches(self, shown: Shown) -> bool:
        """Return whether an observed entry matches."""
        if self.deleted or shown.deleted:
            return self.deleted == shown.deleted and not shown.body
        return (self.body, self.reactions) == (shown.body, shown.reactions)


class StoryIndex:
    """The story, grouped once for all rules."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.logs: dict[str, tuple[Shown, ...]] = {}
        self.periods: dict[str, MembershipPeriods] = {}
        self.asked: dict[tuple[str, str, str], Asked] = {}
        self.done: dict[tuple[str, str, str], Answered] = {}
        self.refused: dict[tuple[str, str, str], Answered] = {}
        self.delivered: dict[tuple[str, str, str], list[Delivered | Skipped]] = defaultdict(list)
        self.restarted: set[str] = set()  # devices
        for scene in story.scenes:
            match scene:
                case Asked():
                    self.asked[scene.chat, scene.user, scene.ref] = scene
                case Answered():
                    answers = self.refused if scene.code else self.done
                    answers.setdefault((scene.chat, scene.user, scene.ref), scene)
                case Delivered() | Skipped():
                    self.delivered[scene.user, scene.device, scene.chat].append(scene)
                case Restarted():
                    self.restarted.add(scene.device)
                case Stored():
                    self.set_log(scene.chat, scene.entries)
                case _:
                    pass

    def set_log(self, chat: str, log: tuple[Shown, ...]) -> None:
        """Set the reference log of a chat."""
        self.logs[chat] = log
        self.periods[chat] = MembershipPeriods(self.story.chats.get(chat, ()), log)

    def of(self, chat: str) -> MembershipPeriods:
        """Return the membership periods of a chat; empty for an unknown one."""
        return self.periods.get(chat) or MembershipPeriods((), ())

    def at(self, chat: str, seq: int) -> Shown | None:
        """Return the entry of the log at a seq."""
        log = self.logs.get(chat, ())
        if 0 < seq <= len(log) and log[seq - 1].seq == seq:
            return log[seq - 1]
        return next((entry for entry in log if entry.seq == seq), None)

    def messages(self, chat: str) -> dict[int, ExpectedMessage]:
        """Return the expected messages of a chat, from the requests in log order."""
        messages: dict[int, ExpectedMessage] = {}
        for entry in self.logs.get(chat, ()):
            asked = self.asked.get((chat, entry.sender, entry.ref))
            if entry.kind == "text":
                messages[entry.seq] = ExpectedMessage(asked.body if asked is not None else "?")
            target = messages.get(entry.target or 0)
            if target is None or asked is None or target.deleted:
                continue
            match entry.kind:
                case "edit":
                    target.body = asked.body
                case "delete":
                    target.deleted = True
                case "reaction" if asked.body:
                    target.reactions[entry.sender] = asked.body
                case "reaction":
                    target.reactions.pop(entry.sender, None)
                case _:
                    pass
        return messages

    def hidden_from(self, user: str, chat: str) -> set[int]:
        """Return the seqs of messages that a user deleted only for themselves."""
        return {
            asked.target
            for key, asked in self.asked.items()
            if asked.kind == "hide" and key[:2] == (chat, user) and key in self.done
        }
