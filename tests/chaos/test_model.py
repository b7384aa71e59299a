"""Model test of all guarantees: a hypothesis state machine generates user actions and faults.

The stack has three gateways, two persist workers, repair and rpc, with a real Redis (AOF `always`)
and the DynamoDB API server. Twenty users have two devices each, most of them with the Python SDK.
`ModelMachine` tracks the members of each chat and chooses the next action. A `Simulation` performs
it without waiting for its effects, so actions are concurrent. One example of the machine is one
round. It ends with `Simulation.finish_and_check`, which checks all requests, deliveries, reads and
stored data.

A state machine is used instead of a random script, because the valid next actions depend on earlier
ones. Hypothesis also omits some kinds of actions in a round, so that the others are frequent. It
does not shrink failures: with real processes, the same script may not fail twice. The seed
reproduces the script. A failure prints both, and ``CHAOS_SCRIPT=<file>`` performs a script, whole
or shortened by hand.

`CHAOS_SECONDS` (``make soak``) continues with more seeds for that time, and `CHAOS_SEEDS` runs that
many seeds with few steps; in CI the seed is fixed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.chaos.actions import Actions
from tests.chaos.conftest import SETTINGS
from tests.chaos.expected_members import ExpectedMembers
from tests.chaos.simulation import GROUPS, PAIRS, USERS, Action, Simulation, pairs_of
from tests.chaos.world import new_seed
from tests.support.stack import Fleet, Stack, open_stack, start

SEED = 15  # its script contains every kind of action
ROUNDS = 4  # in one simulation; in the first one, hypothesis repeats one action of one user
STEPS = 60
SOAK_S = float(os.environ.get("CHAOS_SECONDS", "0"))
SEEDS = int(os.environ.get("CHAOS_SEEDS", "0"))
SEED_ROUNDS = 2
SOAK_ROUNDS = 10
SOAK_STEPS = 120
SMALL = {  # small limits so that logs and inboxes overflow and chats change size
    "CHAT_REDIS_LOG_MAX": "100",
    "CHAT_REDIS_INBOX_MAX": "100",
    "CHAT_CHATS_FANOUT_MEMBERS_MAX": "8",
}
FAULTS_MAX = 2  # of one kind in a round, because each restart takes a second or two

chats = st.integers(0, len(GROUPS) + PAIRS - 1)
groups = st.integers(0, len(GROUPS) - 1)
people = st.integers(0, USERS - 1)
devices = st.integers(0, 1)
places = st.integers(0, 40)
pauses = st.integers(0, 1_000)


class ModelMachine(RuleBasedStateMachine):
    """Chooses actions from the expected members of each chat."""

    simulation: Simulation
    runner: asyncio.Runner
    failure: BaseException | None = None  # after a failure, further actions are skipped

    def __init__(self) -> None:
        super().__init__()
        self.actions = Actions(self.simulation)
        self._run(self.simulation.begin())
        self.members = ExpectedMembers([*GROUPS, *pairs_of(self.simulation.round)])
        self.faults: dict[str, int] = {}
        for chat in range(len(self.members.of)):
            self.act("send_as_all", chat, 1)  # so that there are messages to edit and read

    def teardown(self) -> None:
        """End the round and check it."""
        self._run(self.simulation.finish_and_check())
        if type(self).failure is not None:
            raise type(self).failure

    def _run(self, work: Any) -> None:
        kind = type(self)
        if kind.failure is not None:
            work.close()
            return
        try:
            self.runner.run(work)
        except Exception as exc:
            # A failure is reported to hypothesis at the end of the round.
            kind.failure = exc

    def act(self, name: str, *args: int) -> None:
        """Perform an action."""
        self._run(self.actions.perform(Action(name, args)))

    def act_all(self, actions: Iterable[Action]) -> None:
        """Perform actions in order."""
        for action in actions:
            self.act(action.name, *action.args)

    def member(self, chat: int, who: int) -> int:
        """Return a member of a chat."""
        members = self.members.of[chat]
        return members[who % len(members)]

    def may(self, fault: str) -> bool:
        """Count a fault; return whether another one is allowed in this round."""
        self.faults[fault] = self.faults.get(fault, 0) + 1
        return self.faults[fault] <= FAULTS_MAX

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @rule(chat=chats, who=people, device=devices, count=st.integers(1, 8))
    def add_messages(self, chat: int, who: int, device: int, count: int) -> None:
        """A member sends one or many messages at once."""
        self.act("send", self.member(chat, who), device, chat, count)

    @rule(chat=chats)
    def broadcast(self, chat: int) -> None:
        """Everyone sends at once, former members included."""
        self.act("send_as_all", chat, 1)

    @rule(chat=chats, user=people)
    def inject_message(self, chat: int, user: int) -> None:
        """Any user tries to send a message."""
        self.act("send", user, 0, chat, 1)

    @rule(chat=chats, who=people, device=devices, which=places)
    def edit(self, chat: int, who: int, device: int, which: int) -> None:
        """A member edits a message."""
        self.act("edit", self.member(chat, who), device, chat, which)

    @rule(chat=chats, who=people, device=devices, which=places, emoji=st.integers(0, 3))
    def react(self, chat: int, who: int, device: int, which: int, emoji: int) -> None:
        """A member adds or removes a reaction."""
        self.act("react", self.member(chat, who), device, chat, which, emoji)

    @rule(chat=chats, who=people, device=devices, which=places, is_hidden=st.booleans())
    def delete(self, chat: int, who: int, device: int, which: int, is_hidden: bool) -> None:
        """A member deletes a message, for everyone or only for themselves."""
        self.act("hide" if is_hidden else "delete", self.member(chat, who), device, chat, which)

    @rule(chat=chats, user=people, which=places)
    def modify_foreign(self, chat: int, user: int, which: int) -> None:
        """Any user tries to change any message."""
        self.act("change_foreign", user, chat, which)

    # ── members ─────────────────────────────────────────────────────────────────────────────────

    @rule(chat=groups, user=people)
    def join_or_leave(self, chat: int, user: int) -> None:
        """A member leaves, a non-member joins; the owner stays."""
        self.act_all(self.members.join_or_leave(chat, user))

    @rule(chat=groups, user=people)
    def invite_or_remove(self, chat: int, user: int) -> None:
        """The owner removes a member, or invites a non-member."""
        self.act_all(self.members.invite_or_remove(chat, user))

    @rule(chat=groups)
    def resize(self, chat: int) -> None:
        """Many users join or leave at once, so that the chat becomes large, or small again."""
        self.act_all(self.members.resize(chat))

    @rule(chat=groups)
    def rename(self, chat: int) -> None:
        """The owner renames the chat."""
        self.act("rename", self.members.of[chat][0], chat)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    @rule(chat=chats, user=people, before=places)
    def list_page(self, chat: int, user: int, before: int) -> None:
        """Any user requests a page."""
        self.act("read_page", user, chat, before)

    @rule(chat=chats, who=people, is_typing=st.booleans())
    def mark(self, chat: int, who: int, is_typing: bool) -> None:
        """A member marks everything as read, or types."""
        self.act("type" if is_typing else "mark", self.member(chat, who), chat)

    # ── faults ──────────────────────────────────────────────────────────────────────────────────

    @rule(pause_ms=st.integers(50, 400))
    def wait(self, pause_ms: int) -> None:
        """Wait for a moment."""
        self.act("wait", pause_ms)

    @rule(user=people, device=devices)
    def restart_device(self, user: int, device: int) -> None:
        """An application is closed and opened again."""
        if self.may(f"device {user}"):
            self.act("restart_device", user, device)

    @precondition(lambda self: self.faults.get("cut", 0) < 2 * FAULTS_MAX)
    @rule()
    def disconnect_some(self) -> None:
        """The connection of a quarter of the users breaks."""
        self.may("cut")
        self.act("cut")

    @precondition(lambda self: self.faults.get("gateway", 0) < FAULTS_MAX)
    @rule(which=st.integers(0, 2), is_kill=st.booleans())
    def end_gateway(self, which: int, is_kill: bool) -> None:
        """A gateway is killed or terminated."""
        self.may("gateway")
        self.act("kill_gateway" if is_kill else "end_gateway", which)

    @precondition(lambda self: self.faults.get("renewal", 0) < 1)
    @rule()
    def renew_gateways(self) -> None:
        """All gateways are replaced, one by one."""
        self.may("renewal")
        self.act("renew_gateways")

    @rule(which=st.integers(0, 2), is_kill=st.booleans(), pause_ms=pauses)
    def end_worker(self, which: int, is_kill: bool, pause_ms: int) -> None:
        """A persist worker, or repair and rpc, is killed or terminated; it is restarted later."""
        worker = f"worker {which}"
        if worker not in self.faults:
            self.may(worker)
            self.act("kill_worker" if is_kill else "end_worker", which, pause_ms)


@pytest.fixture(scope="module")
def simulation_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Fleet]]:
    """Redis with AOF `always`, DynamoDB, two persist workers, repair and rpc, three gateways."""
    folder = tmp_path_factory.mktemp("simulation")
    settings_ = SETTINGS | {"CHAT_REDIS_PARTITIONS": "4", **SMALL}
    with open_stack(folder, gateways=0, workers=(), fsync="always", env=settings_) as stack:
        for name in ("persist-one", "persist-two"):  # the stack owns both and stops them
            stack.start_worker("persist")
            stack.workers[name] = stack.workers.pop("persist")
        stack.start_worker("repair", "rpc")
        fleet = stack.add_fleet(3, CHAT_GATEWAY_DRAIN_S="2")
        start(fleet)
        yield stack, fleet


def run_simulation(
    stack: tuple[Stack, Fleet], folder: Path, number: int, rounds: int, steps: int
) -> Simulation:
    """Run a simulation with a seed, and return it."""
    with asyncio.Runner() as runner:
        simulation = Simulation(*stack, folder, number)
        runner.run(simulation.__aenter__())
        try:
            attributes = {"simulation": simulation, "runner": runner}
            machine: type[ModelMachine] = type("Machine", (ModelMachine,), attributes)
            limits = settings(
                max_examples=rounds,
                stateful_step_count=steps,
                phases=[Phase.generate],
                database=None,
                deadline=None,
                print_blob=False,
                suppress_health_check=list(HealthCheck),
            )
            run_state_machine_as_test(seed(number)(machine), settings=limits)
        except Exception:
            # Report the first failure, not an error that hypothesis raised when it replayed the
            # script.
            if machine.failure is None:
                raise
            raise AssertionError(str(machine.failure)) from machine.failure.__cause__
        finally:
            runner.run(simulation.__aexit__(None, None, None))
    print(f"seed {number}: {simulation.statistics()}, all guarantees kept")  # noqa: T201
    return simulation


def perform(stack: tuple[Stack, Fleet], folder: Path, script: list[Action]) -> None:
    """Run a simulation with a script."""

    async def run() -> None:
        async with Simulation(*stack, folder, 0) as simulation:
            actions = Actions(simulation)
            for number, action in enumerate(script):
                if action.name != "begin":
                    await actions.perform(action)
                    continue
                if number:
                    await simulation.finish_and_check()
                await simulation.begin()
            await simulation.finish_and_check()
        print(f"script: {simulation.statistics()}, all guarantees kept")  # noqa: T201  # the run's statistics

    asyncio.run(run())


@pytest.mark.timeout(600 + 2 * SOAK_S + 120 * SEEDS)  # a started simulation is not interrupted
def test_random_actions_and_faults_keep_all_guarantees(
    simulation_stack: tuple[Stack, Fleet], tmp_path: Path
) -> None:
    """Each acked entry reaches every member and DynamoDB once and in order, and no one else."""
    script = os.environ.get("CHAOS_SCRIPT")
    if script:
        actions = msgspec.json.decode(Path(script).read_bytes(), type=list[Action])
        perform(simulation_stack, tmp_path, actions)
    elif SEEDS:
        first = int(os.environ.get("CHAOS_SEED", "1"))
        for number in range(first, first + SEEDS):
            run_simulation(simulation_stack, tmp_path, number, SEED_ROUNDS, STEPS)
    elif not SOAK_S:
        number = int(os.environ.get("CHAOS_SEED", SEED))
        simulation = run_simulation(simulation_stack, tmp_path, number, ROUNDS, STEPS)
        performed = {action.name for action in simulation.script}
        assert number != SEED or performed >= Actions.names(), (
            "the script of SEED no longer has all actions; choose another seed"
        )
    give_up = time.monotonic() + (0 if script else SOAK_S)
    while time.monotonic() < give_up:
        run_simulation(simulation_stack, tmp_path, new_seed(), SOAK_ROUNDS, SOAK_STEPS)
