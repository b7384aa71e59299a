"""Script generator: user actions and faults in a `FullTown` from a seed, in periods.

About a quarter of the periods are calm. Each seed uses a random subset of the kinds of faults, so
that these are frequent. The end is calm: the system comes to rest, then each chat gets one more
message, which proves that it works again and leads to a push for users without a device.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from tests.chaos.full_town import ABSENT, CHATS, HALL
from tests.chaos.nemesis import FAULTS
from tests.chaos.town import GROUPS, USERS, Action, pairs_of

PERIODS = 8
PERIOD_MS = (800, 2_200)
STEP_MS = (10, 120)
CALM = 0.25
FAULTS_IN_PERIOD = (1, 2)
KINDS_OF_SEED = 0.6
CROWD, FEW = 10, 5  # members: more than `fanout_members_max`, and clearly below it
RARE = {"kill_redis", "cut_redis_log", "flush_redis", "renew_gateways", "kill_dynamodb"}
RARE_MAX = 2  # of a kind in a script: recovery from each takes seconds

# User actions and their weights.
PEOPLE = {
    "say": 30,
    "chorus": 3,
    "intrude": 2,
    "edit": 10,
    "react": 8,
    "remove_message": 6,
    "meddle": 2,
    "join_or_leave": 7,
    "invite_or_remove": 5,
    "surge": 2,
    "rename": 2,
    "look": 6,
    "mark": 10,
    "type": 2,
    "list": 4,
    "restart_device": 1,
}


def write_script(seed: int, kinds: Collection[str]) -> list[Action]:
    """Return the script of a seed, with faults of these kinds only."""
    return _Writer(seed, sorted(kinds)).write()


class _Writer:
    """Generates actions from the expected membership of each chat."""

    def __init__(self, seed: int, kinds: list[str]) -> None:
        self._dice = random.Random(seed)
        count = max(1, round(len(kinds) * KINDS_OF_SEED)) if kinds else 0
        self._kinds = self._dice.sample(kinds, count)
        self._script: list[Action] = []
        self._members = [list(users) for users in GROUPS]
        self._members += [list(pair) for pair in pairs_of(1)]
        self._members += [[number] for number in range(ABSENT)]
        self._members.append(list(range(USERS)))
        assert len(self._members) == CHATS
        self._faults: dict[str, int] = {}

    def write(self) -> list[Action]:
        for chat in range(CHATS):
            if chat != HALL:
                self._act("chorus", chat, 1)
        for _ in range(PERIODS):
            left = self._dice.randint(*PERIOD_MS)
            if self._kinds and self._dice.random() >= CALM:
                for _ in range(self._dice.randint(*FAULTS_IN_PERIOD)):
                    self._break()
            while left > 0:
                self._live()
                step = self._dice.randint(*STEP_MS)
                self._act("wait", step)
                left -= step
        self._act("rest")
        for chat, members in enumerate(self._members):
            self._act("say", members[0], 0, chat, 1)
        return self._script

    def _act(self, name: str, *args: int) -> None:
        self._script.append(Action(name, args))

    def _break(self) -> None:
        kind = self._dice.choice(self._kinds)
        self._faults[kind] = self._faults.get(kind, 0) + 1
        if kind not in RARE or self._faults[kind] <= RARE_MAX:
            self._act(kind, *FAULTS[kind](self._dice))

    def _chat(self) -> int:
        # The hall has 260 members, of whom 20 are connected: an event in it is expensive.
        return self._dice.randrange(CHATS) if self._dice.random() < 0.3 else self._few_chat()

    def _few_chat(self) -> int:
        return self._dice.randrange(HALL)

    def _member(self, chat: int) -> int:
        return self._dice.choice(self._members[chat])

    def _live(self) -> None:
        dice = self._dice
        what = dice.choices(list(PEOPLE), list(PEOPLE.values()))[0]
        chat, which, device = self._chat(), dice.randint(0, 40), dice.randint(0, 1)
        user, who = dice.randrange(USERS), self._member(chat)
        group = dice.randrange(len(GROUPS))
        match what:
            case "say":
                self._act("say", who, device, chat, dice.choice((1, 1, 1, 2, 8)))
            case "chorus":
                self._act("chorus", self._few_chat(), 1)
            case "intrude":
                self._act("say", user, 0, chat, 1)
            case "edit":
                self._act("edit", who, device, chat, which)
            case "react":
                self._act("react", who, device, chat, which, dice.randint(0, 3))
            case "remove_message":
                self._act(dice.choice(("hide", "delete")), who, device, chat, which)
            case "meddle":
                self._act("meddle", user, chat, which)
            case "join_or_leave":
                self._join_or_leave(dice.choice((group, group, HALL)), user)
            case "invite_or_remove":
                self._invite_or_remove(dice.choice((group, group, HALL)), user)
            case "surge":
                self._surge(group)
            case "rename":
                self._act("rename", self._members[group][0], group)
            case "look":
                self._act("look", user, chat, which)
            case "mark":
                self._act("mark", who, chat)
            case "type":
                self._act("type", who, chat)
            case "list":
                self._act("list", user)
            case _:
                self._act("restart_device", user, device)

    def _join_or_leave(self, chat: int, user: int) -> None:
        members = self._members[chat]
        if user not in members:
            members.append(user)
            self._act("join", user, chat)
        elif user != members[0]:
            members.remove(user)
            self._act("leave", user, chat)

    def _invite_or_remove(self, chat: int, user: int) -> None:
        members = self._members[chat]
        if user not in members:
            members.append(user)
            self._act("invite", members[0], chat, user)
        elif user != members[0]:
            members.remove(user)
            self._act("remove", members[0], chat, user)

    def _surge(self, chat: int) -> None:
        members = self._members[chat]
        others = [user for user in range(USERS) if user not in members]
        if len(members) > (CROWD + FEW) // 2:
            for user in members[FEW:]:
                members.remove(user)
                self._act("leave", user, chat)
        else:
            for user in others[: CROWD - len(members)]:
                members.append(user)
                self._act("join", user, chat)
