"""Script of a seed: about 200 user actions and a few faults.

Each seed has a random subset of the kinds of faults and of the user actions, so that these are
frequent. After the last fault the system becomes idle; then each chat gets one more message, which
shows that it works.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

from tests.chaos.script import BACK, USER_ACTIONS
from tests.chaos.simulation import Action
from tests.simulation.faults import FAULTS
from tests.simulation.play import GROUPS, PAIRS, USERS

STEPS = 150  # about 205 operations: some steps send several messages
FAULTS_PER_SCRIPT = 5
# Sizes of mixed seeds. Short schedules find most faults sooner; long ones have rare orders.
SIZES = ((25, 2), (40, 2), (70, 3), (150, 5))  # user actions and faults
STEP_MS = (0, 60)
KINDS_OF_SEED = 0.5
API_SHARE = 0.08  # of the steps in which the API is used, too
HOT_CHAT_SHARE = 0.25  # of the seeds, in which one chat gets most of the messages
LAST_FAULT_SHARE = 0.5  # of the seeds, in which the last messages are followed by a fault
_KILLS = ("kill_gateway", "kill_worker")
_LEFT_OUT = {"resize"}


def write_script(
    seed: int,
    *,
    kinds: Collection[str],
    features: Collection[str] = (),
    steps: int = STEPS,
    faults: int = FAULTS_PER_SCRIPT,
    weights: Mapping[str, int] | None = None,
) -> list[Action]:
    """Return the script of a seed, with faults of these kinds only.

    With `weights`, the other user actions are rare.
    """
    unused = tuple(f"_{name}" for name in ("api", "push") if name not in features)
    possible = sorted(kind for kind in kinds if not kind.endswith(unused))
    return _Writer(seed, possible, features, weights or {}).write(steps, faults)


def draw_size(seed: int) -> tuple[int, int]:
    """Return how many user actions and faults a mixed seed has."""
    return random.Random(f"size {seed}").choice(SIZES)


class _Writer:
    def __init__(
        self, seed: int, kinds: list[str], features: Collection[str], weights: Mapping[str, int]
    ) -> None:
        self._rng = random.Random(f"script {seed}")
        self._has_api = "api" in features
        self._kinds = self._rng.sample(kinds, max(1, round(len(kinds) * KINDS_OF_SEED)))
        names = [name for name in USER_ACTIONS if name not in _LEFT_OUT]
        # A swarm: each seed leaves out some kinds of actions.
        self._names = ["send", *(name for name in names if self._rng.random() < 0.7)]
        self._weights: list[float] = [USER_ACTIONS[name] for name in self._names]
        if weights:
            self._names = names
            self._weights = [weights.get(name, 1) for name in names]
        self._script: list[Action] = []
        self._members = [list(users) for users in GROUPS] + [list(pair) for pair in PAIRS]
        if "push" in features:
            self._members.append([0])  # the direct chat with the absent user
        self._hot_chat: int | None = None
        if self._rng.random() < HOT_CHAT_SHARE:
            self._hot_chat = self._rng.randrange(len(self._members))

    def write(self, steps: int, faults: int) -> list[Action]:
        rng = self._rng
        times = sorted(rng.randrange(steps // 10, steps) for _ in range(faults))
        erase_at = rng.randrange(steps // 3, steps) if self._has_api else None
        for step in range(steps):
            if step == erase_at:
                self._add("erase")
            if self._has_api and rng.random() < API_SHARE:
                self._add("write_by_api", rng.choice((1, 1, 3)))
            while times and times[0] <= step:
                times.pop(0)
                kind = rng.choice(self._kinds)
                self._add(kind, *FAULTS[kind](rng))
            self._add_user_action()
            if rng.random() < 0.7:
                self._add("wait", rng.randint(*STEP_MS))
        if faults and rng.random() < LAST_FAULT_SHARE:
            self._add_last_fault()
        self._add("quiesce")
        for chat, members in enumerate(self._members):
            self._add("send", members[0], 0, chat, 1)
        return self._script

    def _add(self, name: str, *args: int) -> None:
        self._script.append(Action(name, args))

    def _add_last_fault(self) -> None:
        """Add a message in each chat, and a fault that no later message repairs."""
        for chat, members in enumerate(self._members):
            self._add("send", self._rng.choice(members), 0, chat, 1)
        kills = [kind for kind in self._kinds if kind in _KILLS]
        kind = self._rng.choice(kills or self._kinds)
        self._add(kind, *FAULTS[kind](self._rng))

    def _add_user_action(self) -> None:
        rng = self._rng
        what = rng.choices(self._names, self._weights)[0]
        chat = rng.randrange(len(self._members))
        if self._hot_chat is not None and what == "send" and rng.random() < 0.8:
            chat = self._hot_chat
        which, device = rng.randint(0, 40), rng.randint(0, 1)
        user, member = rng.randrange(USERS), rng.choice(self._members[chat])
        group = rng.randrange(len(GROUPS))
        match what:
            case "send":
                self._add("send", member, device, chat, rng.choice((1, 1, 1, 1, 2, 3)))
            case "send_as_all":
                self._add("send_as_all", chat, 1)
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
                self._join_or_leave(group, user)
            case "invite_or_remove":
                self._invite_or_remove(group, user)
            case "rename":
                self._add("rename", self._members[group][0], group)
            case "read_page":
                self._add("read_page", user, chat, which)
            case "mark":
                self._add("mark", member, chat, rng.choice(BACK))
            case "type":
                self._add("type", member, chat)
            case "list":
                self._add("list", user)
            case "restart_device":
                self._add("restart_device", user, device)

    def _join_or_leave(self, chat: int, user: int) -> None:
        members = self._members[chat]
        if user not in members:
            members.append(user)
            self._add("join", user, chat)
        elif user != members[0]:
            members.remove(user)
            self._add("leave", user, chat)

    def _invite_or_remove(self, chat: int, user: int) -> None:
        members = self._members[chat]
        if user not in members:
            members.append(user)
            self._add("invite", members[0], chat, user)
        elif user != members[0]:
            members.remove(user)
            self._add("remove", members[0], chat, user)
