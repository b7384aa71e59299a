"""The SDK's promise as a property: after any faults, it ends in the state of a fresh client.

Hypothesis drives the network, the server and the application: frames are lost, repeated or late,
the inbox is trimmed, Redis loses data, the process restarts. At the end all faults stop, and the
client is compared with a reader of the whole history and with all events that it reported.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chatserver.client import events, saved_state
from chatserver.client.client_state import ClientState, QueuedEvent
from chatserver.client.model import Bounds, Entry, parse_entry
from chatserver.client.outbox import OutboxEntry
from tests.unit.client.fake_server import LARGE, ME, FakeServer, FakeSession

CHATS = ("a", "b", "c", LARGE)
BOUNDS = Bounds(entries_max=12, fill_max=1_000, events_max=8)
chats = st.sampled_from(CHATS)
small = st.integers(0, 4)


class EventChecker:
    """Receives the application's events and fails on repeats, gaps and wrong order."""

    def __init__(self) -> None:
        self.positions: dict[str, int | None] = {}
        self.delivered: dict[tuple[str, str], int] = {}  # chat, mid → seq
        self.acked: dict[str, str] = {}
        self.refused: set[str] = set()

    def check(self, event: events.Event) -> None:
        match event:
            case events.MessageAdded(chat, entry):
                self._entry(chat, entry)
            case events.MessageChanged(chat, entry, _):
                self._entry(chat, entry)
            case events.Skipped(chat, _, upto):
                self.positions[chat] = upto
                self._invalidate(chat, 0, upto)
            case events.EntriesWithdrawn(chat, _, after):
                self.positions[chat] = after
                self._invalidate(chat, after + 1, None)
            case events.Acked(ref, chat):
                assert ref not in self.acked, f"{ref} was acked twice"
                self.acked[ref] = chat
            case events.Refused(ref):
                self.refused.add(ref)

    def _invalidate(self, chat: str, low: int, high: int | None) -> None:
        """Mark delivered entries as unknown to the server. They must not be delivered again."""
        for key, seq in self.delivered.items():
            if key[0] == chat and low <= seq and (high is None or seq <= high):
                self.delivered[key] = -1

    def find_ghosts(self, server: FakeServer) -> list[tuple[str, str]]:
        """Return delivered entries that the server does not have and never withdrew."""
        return [
            (chat, mid)
            for (chat, mid), seq in self.delivered.items()
            if seq > 0 and [e["mid"] for e in server.logs[chat][seq - 1 : seq]] != [mid]
        ]

    def _entry(self, chat: str, entry: Entry) -> None:
        assert (chat, entry.mid) not in self.delivered, f"{entry} was delivered twice"
        position = self.positions.get(chat)
        assert position is None or entry.seq == position + 1, f"{entry} after {position}"
        self.positions[chat] = entry.seq
        self.delivered[chat, entry.mid] = entry.seq


class ClientMachine(RuleBasedStateMachine):
    """One device of `ME` against a model of the server."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.server = FakeServer(CHATS)
        self.client = self.new_client()
        self.checker = EventChecker()
        self.session: FakeSession | None = None
        self.connection = 0
        self.last: dict[str, Any] | None = None
        self.late: list[tuple[int, dict[str, Any]]] = []
        self.refs = (f"r{number}" for number in itertools.count(1))
        self.operations: dict[str, str] = {}  # ref → chat
        self.meant: dict[str, str] = {}  # ref of a change → ref of the message that it changes
        self.queued: collections.deque[QueuedEvent] = collections.deque()
        self.is_busy = False  # the application takes no events
        self.others_send("a", 2, "bob")
        self.others_send(LARGE, 1, "bob")
        self.exchange(0, 0)
        self.newest: set[int] = set()  # numbers of requests for the newest page
        self.before: dict[int, int] = {}  # number of a request for an older page → its `before`

    def new_client(self) -> ClientState:
        return ClientState("phone", BOUNDS)

    def restart_client(self, position: bytes | None, operations: bytes) -> ClientState:
        """Return the client of a new process, restored from the saved state."""
        client = self.new_client()
        saved_state.restore(client, position, operations)
        return client

    # ── the network ─────────────────────────────────────────────────────────────────────────────

    def connect(self) -> None:
        hello = self.client.build_hello("token")
        self.session = FakeSession(self.server, hello)
        self.connection = self.client.handle_welcome(self.session.welcome, self.now)

    def disconnect(self, *, is_late: bool) -> None:
        """End the connection; frames in flight are lost, or arrive too late."""
        assert self.session is not None
        if is_late:
            self.late = [(self.connection, frame) for frame in self.session.to_client]
        self.session = None
        self.client.handle_disconnect(self.now)

    def deliver(self, count: int) -> None:
        assert self.session is not None
        self.session.push_pending()
        for _ in range(min(count, len(self.session.to_client))):
            self.last = self.session.to_client.pop(0)
            self.client.handle_frame(self.connection, self.last, self.now)
            self.move_frames()

    def serve(self, count: int) -> None:
        assert self.session is not None
        for _ in range(min(count, len(self.session.to_server))):
            self.session.handle_next()

    def exchange(self, served: int, delivered: int) -> None:
        """Exchange some frames, as in normal operation; reconnect if necessary."""
        if self.session is None:
            self.connect()
            self.move_frames()
        self.serve(served)
        self.deliver(delivered)

    # Rules have equal probability, so the most frequent action has several.

    @rule(served=st.integers(0, 8), delivered=st.integers(0, 8))
    def exchange_some(self, served: int, delivered: int) -> None:
        self.exchange(served, delivered)

    @rule(rounds=st.integers(1, 4))
    def exchange_all(self, rounds: int) -> None:
        for _ in range(rounds):
            self.exchange(100, 100)

    @rule(rounds=st.integers(1, 4))
    def exchange_more(self, rounds: int) -> None:
        self.exchange_all(rounds)

    @precondition(lambda self: self.session is not None)
    @rule(is_late=st.booleans(), served=st.integers(0, 8))
    def break_connection(self, is_late: bool, served: int) -> None:
        self.serve(served)  # the frames take effect, but their responses are lost
        self.disconnect(is_late=is_late)

    @precondition(lambda self: self.session is not None and self.last is not None)
    @rule()
    def repeat_frame(self) -> None:
        assert self.last is not None
        if self.last.get("type") not in {"too_long", "reset"}:  # a snapshot restarts the client
            self.client.handle_frame(self.connection, self.last, self.now)

    @precondition(lambda self: self.session is not None)
    @rule(chat=chats, index=small)
    def lose_event(self, chat: str, index: int) -> None:
        self.others_send(chat, 2, "bob")
        assert self.session is not None
        self.session.push_pending()
        queue = self.session.to_client
        if index < len(queue) and queue[index]["type"] in {"event", "stored"}:
            del queue[index]

    @precondition(lambda self: self.late)
    @rule()
    def late_frame(self) -> None:
        """Receive a frame of a past connection; it changes nothing."""
        self.client.handle_frame(*self.late.pop(0), self.now)

    @rule(seconds=st.sampled_from([0.2, 2.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.client.tick(self.now)

    # ── the server ──────────────────────────────────────────────────────────────────────────────

    @rule(chat=chats, count=st.integers(1, 5), sender=st.sampled_from(["bob", "bob", ME]))
    def others_send(self, chat: str, count: int, sender: str) -> None:
        for _ in range(count):
            self.server.append(chat, sender, f"x{next(self.refs)}", kind="text", body="hello")

    @rule(chat=chats, kind=st.sampled_from(["edit", "delete", "reaction"]), back=small)
    def others_change(self, chat: str, kind: str, back: int) -> None:
        seqs = [entry["seq"] for entry in self.server.logs[chat] if "target" not in entry]
        if back < len(seqs):
            body, ref = "" if kind == "delete" else f"b{back}", f"x{next(self.refs)}"
            self.server.append(chat, "bob", ref, kind=kind, body=body, target=seqs[-1 - back])

    @rule(chat=chats, user=st.sampled_from(["bob", ME]), back=small)
    def others_read(self, chat: str, user: str, back: int) -> None:
        if chat != LARGE:
            self.server.mark(chat, user, len(self.server.logs[chat]) - back)

    @rule(chat=st.sampled_from(["a", "b", LARGE]), is_delivered=st.booleans())
    def switch_large(self, chat: str, is_delivered: bool) -> None:
        """Make a chat large, or small again."""
        self.server.switch_large(chat)
        self.others_send(chat, 2, "bob")
        if is_delivered:
            self.exchange_all(1)

    @rule(kept=small)
    def trim(self, kept: int) -> None:
        self.server.trim(kept)

    @rule(chat=chats, is_delivered=st.booleans())
    def store(self, chat: str, is_delivered: bool) -> None:
        frame = self.server.store(chat)
        if is_delivered and self.session is not None:
            self.session.push_stored(frame)

    @rule(lost=small)
    def rewind(self, lost: int) -> None:
        self.server.rewind(lost)

    @rule(kept=st.integers(0, 2), chat=chats, count=st.integers(3, 9))
    def stay_offline_too_long(self, kept: int, chat: str, count: int) -> None:
        if self.session is not None:
            self.disconnect(is_late=False)
        for other in (chat, "a", "b"):
            self.others_send(other, count, "bob")
            self.others_change(other, "edit", 1)
        self.server.trim(kept)

    @precondition(lambda self: self.session is not None)
    @rule(count=st.integers(1, 3))
    def refuse(self, count: int) -> None:
        assert self.session is not None
        self.session.refusals = count

    # ── the application ─────────────────────────────────────────────────────────────────────────

    @rule(chat=chats)
    def send_and_flow(self, chat: str) -> None:
        self.send(chat, "hot")
        self.exchange_all(1)

    @rule(chat=chats, durability=st.sampled_from(["hot", "hot", "stored"]))
    def send(self, chat: str, durability: str) -> None:
        fields = {"body": "mine", "durability": durability}
        self._do(chat, "send", **fields)

    @rule(chat=chats, kind=st.sampled_from(["edit", "delete", "react"]))
    def change(self, chat: str, kind: str) -> None:
        known = self.client.chats.get(chat)
        messages = known.log.messages() if known is not None else []
        if messages:
            ref = self._do(chat, kind, seq=messages[-1].seq, body="changed", emoji="changed")
            self.meant[ref] = messages[-1].ref

    def _do(self, chat: str, kind: str, **fields: Any) -> str:
        ref = next(self.refs)
        frame = {"type": kind, "chat": chat, "ref": ref, **fields}
        self.client.enqueue(OutboxEntry(ref, chat, frame), self.now)
        self.operations[ref] = chat
        return ref

    @rule(chat=chats)
    def read(self, chat: str) -> None:
        if self.client.is_online and chat in self.client.chats and chat != LARGE:
            top = self.client.chats[chat].log.shown or 0
            self.client.notify({"type": "mark", "chat": chat, "read": top})

    @rule(chat=chats, has_before=st.booleans())
    def ask_history(self, chat: str, has_before: bool) -> None:
        known = self.client.chats.get(chat)
        bottom = known.log.bottom if known is not None else 0
        fields = {"type": "history", "chat": chat}
        if has_before and bottom:
            fields["before"] = bottom  # type: ignore[assignment]  # one of them is given
        number = self.client.send_request(fields, self.now, self.now + 30)
        if "before" in fields:
            self.before[number] = bottom
        else:
            self.newest.add(number)

    @rule()
    def ask_chats(self) -> None:
        self.client.send_request({"type": "chats"}, self.now, self.now + 30)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.client.pause(self.now, is_paused=is_paused)

    @rule()
    def stop_taking_events(self) -> None:
        """Stop taking events until `take` or the end of the process."""
        self.is_busy = True

    @precondition(lambda self: self.is_busy)
    @rule(count=st.integers(1, 12), is_busy=st.booleans())
    def take(self, count: int, is_busy: bool) -> None:
        self.is_busy = is_busy
        self._take(count)

    @rule()
    def restart_process(self) -> None:
        """Continue in another process with the saved state; queued events are delivered again."""
        self._process_output()
        position = saved_state.encode_position(self.client, list(self.queued))
        if position is None:  # an older record would repeat some events
            self._take(len(self.queued))
            position = saved_state.encode_position(self.client)
        operations = saved_state.encode_outbox(self.client, list(self.queued))
        self.is_busy = False
        if self.session is not None:
            self.disconnect(is_late=False)
        self.late.clear()
        self.newest.clear()
        self.before.clear()
        self.client = self.restart_client(position, operations)
        self.queued.clear()

    # ── invariants ──────────────────────────────────────────────────────────────────────────────

    @invariant()
    def move_frames(self) -> None:
        """Move frames from the client to the server, and process what the client reports."""
        if self.session is not None:
            self.session.to_server += self.client.pop_frames()
        self._process_output()

    def _process_output(self) -> None:
        for number, answer in self.client.pop_answers():
            if isinstance(answer, dict) and "chats" in answer:
                self.client.apply_chat_list(answer)
            elif isinstance(answer, dict):
                is_newest, before = number in self.newest, self.before.pop(number, None)
                self.client.apply_history(answer, is_newest=is_newest, before=before)
        self.queued.extend(self.client.pop_queued_events())
        if len(self.queued) >= BOUNDS.events_max:
            self.client.pause(self.now, is_paused=True)
        if not self.is_busy:
            self._take(len(self.queued))

    def _take(self, count: int) -> None:
        """Have the application take events; resume the client when it has taken all."""
        was_full = len(self.queued) >= BOUNDS.events_max
        for _ in range(min(count, len(self.queued))):
            self.checker.check(self.queued.popleft().event)
        if not self.queued and was_full:
            self.client.pause(self.now, is_paused=False)

    def teardown(self) -> None:
        self.late.clear()
        self.is_busy = False
        self.client.pause(self.now, is_paused=False)
        if self.session is not None:
            self.disconnect(is_late=False)
        self.connect()
        self.ask_chats()
        self._exchange_all()
        for chat in CHATS:
            assert self.session is not None
            self.session.push_stored(self.server.store(chat))
        self._exchange_all()
        self._compare()

    def _exchange_all(self) -> None:
        for _ in range(3_000):
            self.move_frames()
            assert self.session is not None
            self.session.push_pending()
            if self.session.to_server:
                self.session.handle_next()
            elif self.session.to_client:
                self.deliver(1)
            elif (due := self.client.get_next_tick(self.now)) is not None:
                self.now = due
                self.client.tick(self.now)
            else:
                return
        raise AssertionError("the exchange of frames does not end")

    def _compare(self) -> None:
        for name, log in self.server.logs.items():
            chat = self.client.chats[name]
            assert (chat.top, chat.read) == (len(log), self.server.marks[name].get(ME, 0)), name
            assert chat.unread == self.server.count_unread(name)
            if chat.log.shown is None:
                continue
            assert chat.log.shown == len(log), name
            fresh = [parse_entry(entry) for entry in self.server.view(name)]
            kept = chat.log.entries()
            assert kept == fresh[len(fresh) - len(kept) :], name
            assert len(kept) <= BOUNDS.entries_max
            position = self.checker.positions.get(name)
            assert position in (None, len(log)), name
        self._compare_sends()

    def _compare_sends(self) -> None:
        assert not self.checker.find_ghosts(self.server)
        assert not list(self.client.outbox), "operations still wait to be stored"
        assert self.operations.keys() == self.checker.acked.keys() | self.checker.refused
        for ref, chat in self.operations.items():
            if ref not in self.checker.refused:
                found = [entry for entry in self.server.logs[chat] if entry["ref"] == ref]
                assert len(found) == 1, f"{ref} was acked and is stored {len(found)} times"
                if ref in self.meant:
                    changed = self.server.logs[chat][found[0]["target"] - 1]
                    assert changed["ref"] == self.meant[ref], f"{ref} changed another message"


TestClientState = ClientMachine.TestCase
TestClientState.settings = settings(
    max_examples=400 if settings.get_current_profile_name() == "soak" else 120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
