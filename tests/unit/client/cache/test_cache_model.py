"""The cache's promise as a property: after any faults, it ends with the server's content.

Runs the random histories of `test_state_model` with a cache in a file: events, edits, deletions for
everyone and for the user, trimmed inboxes, epochs in which Redis lost entries, evictions, and kills
between any two steps, which lose everything since the last save.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, rule

from chatserver.client import saved_state
from chatserver.client.cache.change_recorder import ChangeRecorder
from chatserver.client.cache.local_store import encode_infos, load_chats, restore_chats
from chatserver.client.cache.sqlite_store import Owner, SqliteStore
from chatserver.client.client_state import ClientState
from chatserver.client.model import Entry, parse_entry
from chatserver.client.state_store import Saved
from tests.unit.client.fake_server import ME
from tests.unit.client.test_state_model import BOUNDS, CHATS, ClientMachine, chats, small

ENTRIES_MAX = 20
BYTES_MAX = 6_000
PAGES_MAX = 500


def normalize(entry: Entry) -> Entry:
    """Remove what a reader does not see: a tombstone's revision and the text of an edit entry."""
    if entry.deleted or entry.target is not None:
        return msgspec.structs.replace(entry, rev=0, body="", deleted=entry.target is None)
    return entry


class CachedMachine(ClientMachine):
    """The device of `ClientMachine` with a cache."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.recorder: ChangeRecorder | None = None
        super().__init__()
        self.answered: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.requests: dict[int, dict[str, Any]] = {}
        self.cache = self.open_store()
        self.cache.claim(Owner(ME, "server"))
        self.recorder = ChangeRecorder(self.client)
        self.saved_checker = copy.deepcopy(self.checker)
        self.client = ClientState("phone", BOUNDS)
        self.recorder = ChangeRecorder(self.client)
        self.session = None
        self.save()

    def open_store(self) -> SqliteStore:
        path = Path(self.folder.name) / "phone.db"
        return SqliteStore(path, entries_per_chat_max=ENTRIES_MAX, bytes_max=BYTES_MAX)

    # ── recording, as in the client ─────────────────────────────────────────────────────────────

    def connect(self) -> None:
        if self.recorder is None:
            super().connect()
            return
        received = self.client.handle_welcome

        def connected(welcome: dict[str, Any], now: float) -> int:
            assert self.recorder is not None
            self.recorder.record_welcome(welcome)
            return received(welcome, now)

        self.client.handle_welcome = connected  # type: ignore[method-assign]  # seen first
        super().connect()
        del self.client.handle_welcome  # type: ignore[attr-defined]  # restores the method

    def deliver(self, count: int) -> None:
        if self.recorder is None:
            super().deliver(count)
            return
        assert self.session is not None
        self.session.push_pending()
        for _ in range(min(count, len(self.session.to_client))):
            self.last = self.session.to_client.pop(0)
            if self.last["type"] in {"too_long", "reset"}:
                self.recorder.record_snapshot(self.last)
            self.client.handle_frame(self.connection, self.last, self.now)
            self.move_frames()

    def _process_output(self) -> None:
        if self.recorder is None:
            super()._process_output()
            return
        answers = self.client.pop_answers()
        for number, answer in answers:
            if isinstance(answer, dict) and "messages" in answer:
                self.recorder.record_page(self.requests.pop(number), answer)
        queued = self.client.pop_queued_events()
        self.recorder.record_events([each.event for each in queued])
        # `ClientMachine` takes the same answers and events.
        self.client.pop_answers = lambda: answers  # type: ignore[method-assign]
        self.client.pop_queued_events = lambda: queued  # type: ignore[method-assign]
        try:
            super()._process_output()
        finally:
            del self.client.pop_answers, self.client.pop_queued_events  # type: ignore[attr-defined]

    @rule(chat=chats, has_before=st.booleans())
    def ask_history(self, chat: str, has_before: bool) -> None:
        known = self.client.chats.get(chat)
        bottom = known.log.bottom if known is not None else 0
        fields: dict[str, Any] = {"type": "history", "chat": chat}
        if has_before and bottom:
            fields["before"] = bottom
        self._request_page(fields)

    def _request_page(self, fields: dict[str, Any]) -> None:
        number = self.client.send_request(fields, self.now, self.now + 30)
        self.requests[number] = fields
        if "before" in fields:
            self.before[number] = fields["before"]
        else:
            self.newest.add(number)

    def _do(self, chat: str, kind: str, **fields: Any) -> str:
        ref = super()._do(chat, kind, **fields)
        self.save()  # before it is sent
        return ref

    # ── more actions ────────────────────────────────────────────────────────────────────────────

    @rule(chat=chats, back=small)
    def others_hide(self, chat: str, back: int) -> None:
        """The user deletes a message for themselves on another device."""
        seqs = [entry["seq"] for entry in self.server.logs[chat] if "target" not in entry]
        if back < len(seqs):
            self.server.hide(chat, seqs[-1 - back])

    @rule(chat=chats, back=small, other=chats)
    def hide_while_offline(self, chat: str, back: int, other: str) -> None:
        """Hide a message offline; the inbox loses it, and the snapshot may not list the chat."""
        self.exchange_all(2)
        self.save()
        assert self.session is not None
        self.disconnect(is_late=False)
        self.others_hide(chat, back)
        for active in (other, "a", "b"):
            self.others_send(active, 1, "bob")
        self.server.trim(0)

    @rule(chat=chats, kind=st.sampled_from(["edit", "delete", "reaction"]), back=small)
    def lose_change(self, chat: str, kind: str, back: int) -> None:
        """Redis loses a change that the device has applied."""
        self.server.store(chat)
        self.others_change(chat, kind, back)
        self.exchange_all(2)
        self.save()
        self.server.rewind(3)

    @rule()
    def save(self) -> None:
        """Save all changes, as the client does."""
        if self.recorder is None:
            return
        position, infos = None, {}
        if self.client.user:
            position = saved_state.encode_position(self.client, list(self.queued))
        if position is not None:
            pending = {getattr(each.event, "chat", None) for each in self.queued}
            infos = encode_infos(self.client, [c for c in self.client.chats if c not in pending])
        operations = saved_state.encode_outbox(self.client, list(self.queued))
        self.cache.save_changes(
            Saved(position, operations), self.recorder.pop_changes(), infos, 0.0
        )
        self.saved_checker.acked = dict(self.checker.acked)
        self.saved_checker.refused = set(self.checker.refused)
        if position is not None:
            self.saved_checker = copy.deepcopy(self.checker)

    @rule()
    def kill(self) -> None:
        """End the process at once, and continue in another one with the saved state."""
        if self.recorder is None:
            return
        if self.session is not None:
            self.session = None
        self.cache._connection.close()  # type: ignore[union-attr]  # without a save
        self._reopen()

    @rule()
    def restart_process(self) -> None:
        """End the process in order; events that were not taken are delivered again."""
        if self.recorder is None:
            return
        self._process_output()
        self._take(len(self.queued))
        self.is_busy = False
        self.save()
        if self.session is not None:
            self.disconnect(is_late=False)
        self.cache.close()
        self._reopen()

    def _reopen(self) -> None:
        self.late.clear()
        self.newest.clear()
        self.before.clear()
        self.requests.clear()
        self.queued.clear()
        self.is_busy = False
        self.checker = copy.deepcopy(self.saved_checker)
        self.client = ClientState("phone", BOUNDS)
        self.recorder = ChangeRecorder(self.client)
        self.cache = self.open_store()
        self.client.user = self.cache.claim(Owner("", "server")).user
        saved = self.cache.load()
        saved_state.restore(self.client, saved.position, saved.outbox)
        shown = {chat.id: chat.log.shown for chat in self.client.chats.values()}
        restore_chats(self.client, load_chats(self.cache.cache, self.client.cursor, shown, 0.0))

    # ── invariants ──────────────────────────────────────────────────────────────────────────────

    @invariant()
    def cache_has_what_the_saved_position_covers(self) -> None:
        """Check that each cached range reaches the delivered position and has no gap."""
        if self.recorder is None:
            return
        position = self.cache.load().position
        shown = {} if position is None else self._shown_in(position, self.cache.cache.epoch)
        for name, chat in self.cache.cache._chats.items():
            if not chat.is_empty and not chat.stale and name in shown:
                assert chat.head >= shown[name], name
            page = self.cache.cache.read_page(name, before=None, after=None, limit=100, now_s=0.0)
            seqs = [entry.seq for entry in page.entries] if page is not None else []
            assert seqs == list(range(chat.head + 1 - len(seqs), chat.head + 1)), name
        assert self.cache.cache.size <= BYTES_MAX
        assert all(c.entries <= ENTRIES_MAX for c in self.cache.cache._chats.values())

    @staticmethod
    def _shown_in(position: bytes, epoch: str) -> dict[str, int]:
        """Return the delivered position of each chat, if it belongs to the cache's epoch."""
        decoded = msgspec.json.decode(position, type=saved_state.SavedPosition)
        if decoded.cursor is None or decoded.cursor.epoch != epoch:
            return {}
        return {chat.chat: chat.shown for chat in decoded.chats if not chat.is_unverified}

    def _exchange_all(self) -> None:
        super()._exchange_all()
        for _ in range(PAGES_MAX):
            self.save()
            found = self.cache.cache.find_unverified()
            if found is None:
                return
            fields: dict[str, Any] = {"type": "history", "chat": found.chat}
            if found.before is not None:
                fields["before"] = found.before
            number = self.client.send_request(fields, self.now, self.now + 30)
            self.requests[number] = fields
            self.refresh(number)
        raise AssertionError("unverified copies remain")

    def refresh(self, number: int) -> None:
        """Exchange frames until the requested page has arrived."""
        assert self.recorder is not None
        for _ in range(1_000):
            assert self.session is not None
            self.session.to_server += self.client.pop_frames()
            answers = dict(self.client.pop_answers())
            if number in answers:
                page = answers[number]
                assert isinstance(page, dict)
                self.recorder.record_page(self.requests.pop(number), page)
                self.client.refresh(page)
                return
            if self.session.to_server:
                self.session.handle_next()
            self.session.push_pending()
            for frame in self.session.to_client[:]:
                self.session.to_client.remove(frame)
                self.client.handle_frame(self.connection, frame, self.now)
        raise AssertionError("the history request has no answer")

    def _compare(self) -> None:
        for name in CHATS:
            fresh = [normalize(parse_entry(entry)) for entry in self.server.view(name)]
            kept = [normalize(entry) for entry in self.client.chats[name].log.entries()]
            if self.client.chats[name].log.shown is not None:
                assert kept == fresh[len(fresh) - len(kept) :], name
            page = self.cache.cache.read_page(name, before=None, after=None, limit=100, now_s=0.0)
            if page is None:
                continue
            cached = [normalize(entry) for entry in page.entries]
            assert cached == fresh[len(fresh) - len(cached) :], name
            assert page.has_more == (len(cached) < len(fresh)) or not cached
        self._compare_sends()

    def teardown(self) -> None:
        super().teardown()
        self.cache.close()
        self.folder.cleanup()


TestCache = CachedMachine.TestCase
TestCache.settings = settings(
    max_examples=400 if settings.get_current_profile_name() == "soak" else 40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
