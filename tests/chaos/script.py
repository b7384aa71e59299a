"""Script generator: user actions and faults in a `FullSimulation` from a seed, in periods.

About a quarter of the periods are calm. Each seed uses a random subset of the kinds of faults, so
that these are frequent. The end is calm: the system becomes idle, then each chat gets one more
message, which shows that it works and causes a push for users without a device.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from tests.chaos.expected_members import ExpectedMembers
from tests.chaos.full_simulation import ABSENT, CHATS, LARGE_GROUP
from tests.chaos.nemesis import FAULTS
from tests.chaos.simulation import GROUPS, USERS, Action, pairs_of

PERIODS = 8
PERIOD_MS = (800, 2_200)
STEP_MS = (10, 120)
CALM = 0.25
FAULTS_IN_PERIOD = (1, 2)
KINDS_OF_SEED = 0.6
RARE = {"kill_redis", "cut_redis_log", "flush_redis", "renew_gateways", "kill_dynamodb"}
BACK = (0, 0, 0, 2)  # entries by which a user tries to move a read mark back
RARE_MAX = 2  # of one kind in a script, because each recovery takes seconds

# User actions and their weights.
USER_ACTIONS = {
    "send": 30,
    "send_as_all": 3,
    "inject_message": 2,
    "edit": 10,
    "react": 8,
    "remove_message": 6,
    "change_foreign": 2,
    "join_or_leave": 7,
    "invite_or_remove": 5,
    "resize": 2,
    "rename": 2,
    "read_page": 6,
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
        self._rng = random.Random(seed)
        count = max(1, round(len(kinds) * KINDS_OF_SEED)) if kinds else 0
        self._kinds = self._rng.sample(kinds, count)
        self._script: list[Action] = []
        alone = [[number] for number in range(ABSENT)]
        self._members = ExpectedMembers([*GROUPS, *pairs_of(1), *alone, range(USERS)])
        assert len(self._members.of) == CHATS
        self._faults: dict[str, int] = {}

    def write(self) -> list[Action]:
        for chat in range(CHATS):
            if chat != LARGE_GROUP:
                self._add("send_as_all", chat, 1)
        for _ in range(PERIODS):
            left = self._rng.randint(*PERIOD_MS)
            if self._kinds and self._rng.random() >= CALM:
                for _ in range(self._rng.randint(*FAULTS_IN_PERIOD)):
                    self._add_fault()
            while left > 0:
                self._add_user_action()
                step = self._rng.randint(*STEP_MS)
                self._add("wait", step)
                left -= step
        self._add("quiesce")
        for chat, members in enumerate(self._members.of):
            self._add("send", members[0], 0, chat, 1)
        return self._script

    def _add(self, name: str, *args: int) -> None:
        self._script.append(Action(name, args))

    def _add_fault(self) -> None:
        kind = self._rng.choice(self._kinds)
        self._faults[kind] = self._faults.get(kind, 0) + 1
        if kind not in RARE or self._faults[kind] <= RARE_MAX:
            self._add(kind, *FAULTS[kind](self._rng))

    def _chat(self) -> int:
        # An event in the large group is expensive: it has 260 members, 20 of them connected.
        return self._rng.randrange(CHATS) if self._rng.random() < 0.3 else self._small_chat()

    def _small_chat(self) -> int:
        return self._rng.randrange(LARGE_GROUP)

    def _member(self, chat: int) -> int:
        return self._rng.choice(self._members.of[chat])

    def _add_user_action(self) -> None:
        rng = self._rng
        what = rng.choices(list(USER_ACTIONS), list(USER_ACTIONS.values()))[0]
        chat, which, device = self._chat(), rng.randint(0, 40), rng.randint(0, 1)
        user, member = rng.randrange(USERS), self._member(chat)
        group = rng.randrange(len(GROUPS))
        match what:
            case "send":
                self._add("send", member, device, chat, rng.choice((1, 1, 1, 2, 8)))
            case "send_as_all":
                self._add("send_as_all", self._small_chat(), 1)
            case "inject_message":
                self._add("send", user, 0, chat, 1)
            case "edit":
                self._add("edit", member, device, chat, which)
            case "react":
                self._add("react", member, device, chat, which, rng.randint(0, 3))
            case "remove_message":
                self._add(rng.choice(("hide", "delete")), member, device, chat, which)
            case "change_foreign":
                self._add("change_foreign", user, chat, which)
            case "join_or_leave":
                chat = rng.choice((group, group, LARGE_GROUP))
                self._script += self._members.join_or_leave(chat, user)
            case "invite_or_remove":
                chat = rng.choice((group, group, LARGE_GROUP))
                self._script += self._members.invite_or_remove(chat, user)
            case "resize":
                self._script += self._members.resize(group)
            case "rename":
                self._add("rename", self._members.of[group][0], group)
            case "read_page":
                self._add("read_page", user, chat, which)
            case "mark":
                self._add("mark", member, chat, rng.choice(BACK))
            case "type":
                self._add("type", member, chat)
            case "list":
                self._add("list", user)
            case _:
                self._add("restart_device", user, device)
