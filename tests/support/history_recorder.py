"""Records the histories of `tests/histories`: random, with a reconnect at each step, and scripted.

`python -m tests.support.history_recorder` writes them; they are the same in each run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.support.histories import FOLDER, History, RecordedState, dump, start
from tests.support.history_scripts import SCRIPTS
from tests.unit.client.fake_server import LARGE, ME
from tests.unit.client.test_state_model import BOUNDS, CHATS, ClientMachine

SEEDS = 24
STEPS = 40
Draw = random.Random


class RecordingMachine(ClientMachine):
    """The machine of the property test, with a client that records its history."""

    def __init__(self, name: str) -> None:
        limits = {"entries_max": BOUNDS.entries_max, "events_max": BOUNDS.events_max}
        self._first = start(name, **limits)
        self.history: History = self._first.history
        super().__init__()

    def new_client(self) -> RecordedState:
        return self._first

    def restart_client(self, position: bytes | None, operations: bytes) -> RecordedState:
        """Restart with the saved messages, as a page does after a reload."""
        assert isinstance(self.client, RecordedState)
        return self.client.restart(BOUNDS, list(self.queued))

    def signal(self, kind: str) -> None:
        """Send a signal, which is never repeated."""
        assert self.session is not None
        frame = {"type": "signal", "kind": kind, "from": "bob"}
        more = {"chat": "a", "on": True} if kind == "typing" else {"state": "online"}
        self.session.to_client.append({**frame, **more})

    def reconnect(self) -> None:
        """Drop the connection with all frames in transit."""
        if self.session is not None:
            self.disconnect(is_late=False)
            self.exchange(0, 0)

    def end(self) -> History:
        """End all faults, check the guarantees, and return the history."""
        self.teardown()
        assert isinstance(self.client, RecordedState)
        self.client.describe()
        return self.history


def _kinds(draw: Draw) -> str:
    return draw.choice(["edit", "delete", "reaction"])


# Frequent actions come first. Each draws its own arguments.
ACTIONS: list[tuple[int, Callable[[RecordingMachine, Draw], Any]]] = [
    (4, lambda m, d: m.exchange_some(d.randint(0, 8), d.randint(0, 8))),
    (4, lambda m, d: m.exchange_all(d.randint(1, 3))),
    (3, lambda m, d: m.others_send(d.choice(CHATS), d.randint(1, 4), d.choice(["bob", "bob", ME]))),
    (3, lambda m, d: m.send(d.choice(CHATS), d.choice(["hot", "hot", "stored"]))),
    (2, lambda m, d: m.others_change(d.choice(CHATS), _kinds(d), d.randint(0, 4))),
    (2, lambda m, d: m.break_connection(is_late=d.random() < 0.5, served=d.randint(0, 8))),
    (2, lambda m, d: m.wait(d.choice([0.2, 2.0, 6.0]))),
    (2, lambda m, d: m.lose_event(d.choice(CHATS), d.randint(0, 4))),
    (2, lambda m, d: m.change(d.choice(CHATS), d.choice(["edit", "delete", "react"]))),
    (1, lambda m, d: m.others_read(d.choice(CHATS), d.choice(["bob", ME]), d.randint(0, 4))),
    (1, lambda m, d: m.read(d.choice(CHATS))),
    (1, lambda m, d: m.repeat_frame()),
    (1, lambda m, d: m.late_frame()),
    (1, lambda m, d: m.switch_large(d.choice(["a", "b", LARGE]), is_delivered=d.random() < 0.5)),
    (1, lambda m, d: m.trim(d.randint(0, 4))),
    (1, lambda m, d: m.store(d.choice(CHATS), is_delivered=d.random() < 0.5)),
    (1, lambda m, d: m.rewind(d.randint(0, 4))),
    (1, lambda m, d: m.stay_offline_too_long(d.randint(0, 2), d.choice(CHATS), d.randint(3, 6))),
    (1, lambda m, d: m.refuse(d.randint(1, 3))),
    (1, lambda m, d: m.ask_history(d.choice(CHATS), has_before=d.random() < 0.5)),
    (1, lambda m, d: m.ask_chats()),
    (1, lambda m, d: m.pause(is_paused=d.random() < 0.3)),
    (1, lambda m, d: m.stop_taking_events()),
    (1, lambda m, d: m.take(d.randint(1, 12), is_busy=d.random() < 0.3)),
    (1, lambda m, d: m.restart_process()),
    (1, lambda m, d: m.signal(d.choice(["typing", "presence"]))),
]
NEEDS_SESSION = ("break_connection", "repeat_frame", "lose_event", "refuse", "signal")


def record_random(seed: int) -> History:
    """Record a history of random actions."""
    machine = RecordingMachine(f"random {seed}")
    draw = random.Random(seed)
    weights = [weight for weight, _ in ACTIONS]
    for _ in range(STEPS):
        (_, action), *_ = draw.choices(ACTIONS, weights)
        names = action.__code__.co_names
        if machine.session is None and any(name in NEEDS_SESSION for name in names):
            continue
        if "repeat_frame" in names and machine.last is None:
            continue
        if "late_frame" in names and not machine.late:
            continue
        action(machine, draw)
        machine.move_frames()
    return machine.end()


FIXED_STEPS: list[Callable[[RecordingMachine], Any]] = [
    lambda m: m.send("a", "hot"),
    lambda m: m.exchange(1, 0),
    lambda m: m.exchange(0, 8),
    lambda m: m.others_send("b", 3, "bob"),
    lambda m: m.exchange(0, 1),
    lambda m: m.others_change("b", "edit", 0),
    lambda m: m.others_send(LARGE, 2, "bob"),
    lambda m: m.exchange(2, 2),
    lambda m: m.switch_large("a", is_delivered=False),
    lambda m: m.exchange_all(1),
    lambda m: m.send("a", "stored"),
    lambda m: m.exchange(1, 0),
    lambda m: m.change("b", "react"),
    lambda m: m.trim(0),
    lambda m: m.exchange_all(1),
    lambda m: m.store("a", is_delivered=True),
    lambda m: m.send("b", "hot"),
    lambda m: m.exchange_all(1),
    lambda m: m.rewind(1),
    lambda m: m.exchange(1, 1),
    lambda m: m.exchange_all(2),
]


def record_reconnect(step: int, *, is_reload: bool) -> History:
    """Record a fixed sequence with a reconnect, or a reload, after one of its steps."""
    machine = RecordingMachine(f"{'reload' if is_reload else 'reconnect'} after step {step}")
    for number, action in enumerate(FIXED_STEPS):
        action(machine)
        machine.move_frames()
        if number == step:
            if is_reload:
                machine.restart_process()
            machine.reconnect()
            machine.exchange(0, 0)
            machine.move_frames()
    return machine.end()


def record_all() -> dict[str, str]:
    """Return the text of each file by its name."""
    steps = range(len(FIXED_STEPS))
    return {
        "random.jsonl": dump([record_random(seed) for seed in range(SEEDS)]),
        "reconnects.jsonl": dump([record_reconnect(step, is_reload=False) for step in steps]),
        "reloads.jsonl": dump([record_reconnect(step, is_reload=True) for step in steps]),
        "scripted.jsonl": dump([script() for script in SCRIPTS]),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in record_all().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
