"""The SDK's promise as a property: whatever happens on the way, it ends where a fresh client would.

Hypothesis plays the network, the server and the application: frames are lost, repeated, late, the
inbox is trimmed, Redis goes back in time, the process restarts. At the end everything is healed and
the client is compared with a reader of the whole history, and with all that it told before.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chatserver.client import events, saved_state
from chatserver.client.model import Bounds, Entry, parse_entry
from chatserver.client.outbox import OutboxEntry
from chatserver.client.state import ClientState, QueuedEvent
from tests.unit.client.fake_server import LARGE, ME, FakeServer, FakeSession

CHATS = ("a", "b", "c", LARGE)
BOUNDS = Bounds(entries_max=12, fill_max=1_000, events_max=8)
chats = st.sampled_from(CHATS)
small = st.integers(0, 4)


class Witness:
    """Receives the application's events and fails on repeats, gaps and wrong order."""

    def __init__(self) -> None:
        self.places: dict[str, int | None] = {}
        self.told: dict[tuple[str, str], int] = {}  # chat, mid → seq
        self.acked: dict[str, str] = {}
        self.refused: set[str] = set()

    def hear(self, event: events.Event) -> None:
        """Take an event."""
        match event:
            case events.MessageAdded(chat, entry):
                self._entry(chat, entry)
            case events.MessageChanged(chat, entry, _):
                self._entry(chat, entry)
            case events.Skipped(chat, _, upto):
                self.places[chat] = upto
            case events.EntriesWithdrawn(chat, seqs, after):
                self.places[chat] = after
                gone = [key for key, seq in self.told.items() if key[0] == chat and seq in seqs]
                for key in gone:
                    self.told[key] = -1  # never to be told again
            case events.Acked(ref, chat):
                assert ref not in self.acked, f"{ref} was acked twice"
                self.acked[ref] = chat
            case events.Refused(ref):
                self.refused.add(ref)

    def _entry(self, chat: str, entry: Entry) -> None:
        assert (chat, entry.mid) not in self.told, f"{entry} was told twice"
        place = self.places.get(chat)
        assert place is None or entry.seq == place + 1, f"{entry} after {place}"
        self.places[chat] = entry.seq
        self.told[chat, entry.mid] = entry.seq


class ClientMachine(RuleBasedStateMachine):
    """One device of `ME` against the server's model."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.server = FakeServer(CHATS)
        self.client = self.new_client()
        self.witness = Witness()
        self.session: FakeSession | None = None
        self.connection = 0
        self.last: dict[str, Any] | None = None
        self.late: list[tuple[int, dict[str, Any]]] = []
        self.refs = (f"r{number}" for number in itertools.count(1))
        self.wanted: dict[str, str] = {}
        self.untaken: collections.deque[QueuedEvent] = collections.deque()
        self.is_busy = False  # the application takes no events
        self.others_say("a", 2, "bob")
        self.others_say(LARGE, 1, "bob")
        self.flow(0, 0)
        self.newest: set[int] = set()  # numbers of questions for the newest page
        self.before: dict[int, int] = {}  # number of a question for an older page → its `before`

    def new_client(self) -> ClientState:
        return ClientState("phone", BOUNDS)

    def restarted(self, place: bytes | None, deeds: bytes) -> ClientState:
        """Return the client of a new process; `untaken` has what the old one left untaken."""
        client = self.new_client()
        saved_state.restore(client, place, deeds)
        return client

    # ── the network ─────────────────────────────────────────────────────────────────────────────

    def connect(self) -> None:
        hello = self.client.hello("token")
        self.session = FakeSession(self.server, hello)
        self.connection = self.client.connected(self.session.welcome, self.now)

    def cut(self, *, is_late: bool) -> None:
        """The connection ends; what was on its way is lost, or comes when it is of no use."""
        assert self.session is not None
        if is_late:
            self.late = [(self.connection, frame) for frame in self.session.to_client]
        self.session = None
        self.client.disconnected(self.now)

    def deliver(self, count: int) -> None:
        assert self.session is not None
        self.session.pump()
        for _ in range(min(count, len(self.session.to_client))):
            self.last = self.session.to_client.pop(0)
            self.client.received(self.connection, self.last, self.now)
            self.move_frames()

    def serve(self, count: int) -> None:
        assert self.session is not None
        for _ in range(min(count, len(self.session.to_server))):
            self.session.serve()

    def flow(self, served: int, delivered: int) -> None:
        """Time passes as it should: some frames arrive, here and there; a cut is healed."""
        if self.session is None:
            self.connect()
            self.move_frames()
        self.serve(served)
        self.deliver(delivered)

    # Rules are drawn evenly, so what should happen most has several.

    @rule(served=st.integers(0, 8), delivered=st.integers(0, 8))
    def flow_some(self, served: int, delivered: int) -> None:
        self.flow(served, delivered)

    @rule(rounds=st.integers(1, 4))
    def flow_all(self, rounds: int) -> None:
        for _ in range(rounds):
            self.flow(100, 100)

    @rule(rounds=st.integers(1, 4))
    def flow_more(self, rounds: int) -> None:
        self.flow_all(rounds)

    @precondition(lambda self: self.session is not None)
    @rule(is_late=st.booleans(), served=st.integers(0, 8))
    def break_connection(self, is_late: bool, served: int) -> None:
        self.serve(served)  # it is done, and the answer is lost
        self.cut(is_late=is_late)

    @precondition(lambda self: self.session is not None and self.last is not None)
    @rule()
    def repeat_frame(self) -> None:
        assert self.last is not None
        if self.last.get("type") not in {"too_long", "reset"}:  # those begin something new
            self.client.received(self.connection, self.last, self.now)

    @precondition(lambda self: self.session is not None)
    @rule(chat=chats, index=small)
    def lose_event(self, chat: str, index: int) -> None:
        self.others_say(chat, 2, "bob")
        assert self.session is not None
        self.session.pump()
        queue = self.session.to_client
        if index < len(queue) and queue[index]["type"] in {"event", "stored"}:
            del queue[index]

    @precondition(lambda self: self.late)
    @rule()
    def late_frame(self) -> None:
        """A frame of a connection that is over changes nothing."""
        self.client.received(*self.late.pop(0), self.now)

    @rule(seconds=st.sampled_from([0.2, 2.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.client.tick(self.now)

    # ── the server ──────────────────────────────────────────────────────────────────────────────

    @rule(chat=chats, count=st.integers(1, 5), sender=st.sampled_from(["bob", "bob", ME]))
    def others_say(self, chat: str, count: int, sender: str) -> None:
        for _ in range(count):
            self.server.append(chat, sender, f"x{next(self.refs)}", kind="text", body="hello")

    @rule(chat=chats, kind=st.sampled_from(["edit", "delete", "reaction"]), back=small)
    def others_change(self, chat: str, kind: str, back: int) -> None:
        said = [entry["seq"] for entry in self.server.logs[chat] if "target" not in entry]
        if back < len(said):
            body, ref = "" if kind == "delete" else f"b{back}", f"x{next(self.refs)}"
            self.server.append(chat, "bob", ref, kind=kind, body=body, target=said[-1 - back])

    @rule(chat=chats, user=st.sampled_from(["bob", ME]), back=small)
    def others_read(self, chat: str, user: str, back: int) -> None:
        if chat != LARGE:
            self.server.mark(chat, user, len(self.server.logs[chat]) - back)

    @rule(chat=st.sampled_from(["a", "b", LARGE]), is_heard=st.booleans())
    def turn(self, chat: str, is_heard: bool) -> None:
        """A chat becomes large, or small again."""
        self.server.turn(chat)
        self.others_say(chat, 2, "bob")
        if is_heard:
            self.flow_all(1)

    @rule(kept=small)
    def trim(self, kept: int) -> None:
        self.server.trim(kept)

    @rule(chat=chats, is_heard=st.booleans())
    def store(self, chat: str, is_heard: bool) -> None:
        frame = self.server.store(chat)
        if is_heard and self.session is not None:
            self.session.tell_stored(frame)

    @rule(lost=small)
    def rewind(self, lost: int) -> None:
        self.server.rewind(lost)

    @rule(kept=st.integers(0, 2), chat=chats, count=st.integers(3, 9))
    def be_away_too_long(self, kept: int, chat: str, count: int) -> None:
        if self.session is not None:
            self.cut(is_late=False)
        for other in (chat, "a", "b"):
            self.others_say(other, count, "bob")
            self.others_change(other, "edit", 1)
        self.server.trim(kept)

    @precondition(lambda self: self.session is not None)
    @rule(count=st.integers(1, 3))
    def refuse(self, count: int) -> None:
        assert self.session is not None
        self.session.refusals = count

    # ── the application ─────────────────────────────────────────────────────────────────────────

    @rule(chat=chats)
    def say_and_flow(self, chat: str) -> None:
        self.say(chat, "hot")
        self.flow_all(1)

    @rule(chat=chats, durability=st.sampled_from(["hot", "hot", "stored"]))
    def say(self, chat: str, durability: str) -> None:
        fields = {"body": "mine", "durability": durability}
        self._do(chat, "send", **fields)

    @rule(chat=chats, kind=st.sampled_from(["edit", "delete", "react"]))
    def change(self, chat: str, kind: str) -> None:
        known = self.client.chats.get(chat)
        messages = known.log.messages() if known is not None else []
        if messages:
            self._do(chat, kind, seq=messages[-1].seq, body="changed", emoji="changed")

    def _do(self, chat: str, kind: str, **fields: Any) -> None:
        ref = next(self.refs)
        frame = {"type": kind, "chat": chat, "ref": ref, **fields}
        self.client.do(OutboxEntry(ref, chat, frame), self.now)
        self.wanted[ref] = chat

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
        number = self.client.ask(fields, self.now, self.now + 30)
        if "before" in fields:
            self.before[number] = bottom
        else:
            self.newest.add(number)

    @rule()
    def ask_chats(self) -> None:
        self.client.ask({"type": "chats"}, self.now, self.now + 30)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        self.client.pause(self.now, is_paused=is_paused)

    @rule()
    def be_busy(self) -> None:
        """The application takes no events until `take`, or until its process ends."""
        self.is_busy = True

    @precondition(lambda self: self.is_busy)
    @rule(count=st.integers(1, 12), is_busy=st.booleans())
    def take(self, count: int, is_busy: bool) -> None:
        self.is_busy = is_busy
        self._take(count)

    @rule()
    def restart_process(self) -> None:
        """Another process goes on with what the store has; what was not taken comes again."""
        self._hear()
        place = saved_state.place_of(self.client, list(self.untaken))
        if place is None:  # an older place would do, and tell some of it twice
            self._take(len(self.untaken))
            place = saved_state.place_of(self.client)
        deeds = saved_state.deeds_of(self.client, list(self.untaken))
        self.is_busy = False
        if self.session is not None:
            self.cut(is_late=False)
        self.late.clear()
        self.newest.clear()
        self.before.clear()
        self.client = self.restarted(place, deeds)
        self.untaken.clear()

    # ── what must hold ──────────────────────────────────────────────────────────────────────────

    @invariant()
    def move_frames(self) -> None:
        """Move frames from the client to the server, and record what the client reports."""
        if self.session is not None:
            self.session.to_server += self.client.take_frames()
        self._hear()

    def _hear(self) -> None:
        for number, answer in self.client.take_answers():
            if isinstance(answer, dict) and "chats" in answer:
                self.client.take_chats(answer)
            elif isinstance(answer, dict):
                is_newest, before = number in self.newest, self.before.pop(number, None)
                self.client.take_history(answer, is_newest=is_newest, before=before)
        self.untaken.extend(self.client.take_queued())
        if len(self.untaken) >= BOUNDS.events_max:
            self.client.pause(self.now, is_paused=True)
        if not self.is_busy:
            self._take(len(self.untaken))

    def _take(self, count: int) -> None:
        """Have the application take events; when it has all, the server may send more."""
        was_full = len(self.untaken) >= BOUNDS.events_max
        for _ in range(min(count, len(self.untaken))):
            self.witness.hear(self.untaken.popleft().event)
        if not self.untaken and was_full:
            self.client.pause(self.now, is_paused=False)

    def teardown(self) -> None:
        self.late.clear()
        self.is_busy = False
        self.client.pause(self.now, is_paused=False)
        if self.session is not None:
            self.cut(is_late=False)
        self.connect()
        self.ask_chats()
        self._settle()
        for chat in CHATS:
            assert self.session is not None
            self.session.tell_stored(self.server.store(chat))
        self._settle()
        self._compare()

    def _settle(self) -> None:
        for _ in range(3_000):
            self.move_frames()
            assert self.session is not None
            self.session.pump()
            if self.session.to_server:
                self.session.serve()
            elif self.session.to_client:
                self.deliver(1)
            elif (due := self.client.due(self.now)) is not None:
                self.now = due
                self.client.tick(self.now)
            else:
                return
        raise AssertionError("it does not come to an end")

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
            place = self.witness.places.get(name)
            assert place in (None, len(log)), name
        self._compare_sends()

    def _compare_sends(self) -> None:
        assert not list(self.client.outbox), "nothing waits to be stored"
        assert self.wanted.keys() == self.witness.acked.keys() | self.witness.refused
        for ref, chat in self.wanted.items():
            if ref not in self.witness.refused:
                found = [entry for entry in self.server.logs[chat] if entry["ref"] == ref]
                assert len(found) == 1, f"{ref} was acked and is there {len(found)} times"


TestClientState = ClientMachine.TestCase
TestClientState.settings = settings(
    max_examples=400 if settings.get_current_profile_name() == "soak" else 120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
