"""What the application wants done and the server has to keep: sends, edits, deletions, reactions.

Pure. Each has a `ref`; offered again under it, it happens once (promise P2). It stays here until
the server says that it is stored; in a new epoch what was only acked is offered again (promise P1).

    queued → in flight → acked → gone (stored)
      ↑__________|_________|     connection lost; new epoch

Offers go out in the order in which they were put in. One that was refused for now holds back what
is queued for its chat after it, so the order stays; what is in flight already may overtake it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator
from typing import Any

from chatserver.errors import Conflict, Overloaded

PROBE_S = 5.0  # an ack this old without news of being stored: ask
PROBE_AGAIN_S = 20.0


class Stage(enum.Enum):
    """How far a deed is."""

    QUEUED = "queued"
    IN_FLIGHT = "in flight"
    ACKED = "acked"


@dataclasses.dataclass(slots=True)
class Deed:
    """One thing to do. `fields` is its frame without the request's number."""

    ref: str
    chat: str
    fields: dict[str, Any]
    stage: Stage = Stage.QUEUED
    seq: int = 0
    ts: int = 0
    mid: str = ""
    is_told: bool = False  # the application knows that it was acked
    not_before: float = 0.0
    number: int = 0

    @property
    def is_hide(self) -> bool:
        """True if it deletes a message for us alone, which no `stored` of the chat covers."""
        return self.fields["type"] == "delete" and self.fields.get("for") == "me"

    @property
    def is_stored_wanted(self) -> bool:
        """True if the application wants to hear only when it is stored."""
        return bool(self.fields.get("durability") == "stored")


class Outbox:
    """The deeds of one device, in order."""

    def __init__(self, deeds_max: int) -> None:
        self._deeds: dict[str, Deed] = {}
        self._deeds_max = deeds_max
        # The same deeds by stage: what each step asks for costs what it returns, not all there is.
        self._queued: dict[str, Deed] = {}
        self._in_flight: dict[str, Deed] = {}
        self._acked: dict[str, dict[str, Deed]] = {}  # by chat
        self._last_number = 0
        # When to ask whether what was acked is stored: of a chat (ref empty), or of a hide.
        self._probe_at: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._deeds)

    def __iter__(self) -> Iterator[Deed]:
        return iter(self._deeds.values())

    @property
    def unanswered(self) -> int:
        """How many wait for an ack."""
        return len(self._queued) + len(self._in_flight)

    def find(self, ref: str) -> Deed | None:
        """Return a deed that is not over."""
        return self._deeds.get(ref)

    def put(self, deed: Deed) -> None:
        """Add a deed behind the others. The same again changes nothing.

        Raises:
            Conflict: its `ref` stands for another.
            Overloaded: the outbox is full of what is not stored yet.
        """
        known = self._deeds.get(deed.ref)
        if known is not None:
            if known.fields != deed.fields:
                raise Conflict(f"ref: {deed.ref} stands for something else")
            return
        if len(self._deeds) >= self._deeds_max:
            raise Overloaded(f"{self._deeds_max} sends wait to be stored: try again later")
        self._last_number += 1
        deed.number = self._last_number
        self._deeds[deed.ref] = deed
        if deed.stage is Stage.ACKED:
            self._acked.setdefault(deed.chat, {})[deed.ref] = deed
            self._probe_at[_probe_of(deed)] = 0.0
        else:
            deed.stage = Stage.QUEUED
            self._queued[deed.ref] = deed

    def next_offers(self, now: float, in_flight_max: int) -> list[Deed]:
        """Return what to send now, in order; they are in flight from here on."""
        room = in_flight_max - len(self._in_flight)
        held: set[str] = set()
        offers: list[Deed] = []
        for deed in self._queued.values():
            if len(offers) >= room:
                break
            if deed.not_before > now:
                held.add(deed.chat)
            elif deed.chat not in held:
                offers.append(deed)
        for deed in offers:
            self._move(deed, Stage.IN_FLIGHT)
        return offers

    def acked(
        self, ref: str, place: tuple[int, int, str], now: float, *, is_stored: bool
    ) -> Deed | None:
        """Take the place (seq, ts, mid) of a deed; return it if the application is to be told."""
        deed = self._deeds.get(ref)
        if deed is None:
            return None
        deed.seq, deed.ts, deed.mid = place
        is_news, deed.is_told = not deed.is_told, True
        if is_stored:
            # Nothing else is: what was acked before it may be lost, and of an epoch that is over.
            self.drop(ref)
        elif deed.stage is not Stage.ACKED:
            self._move(deed, Stage.ACKED)
            self._probe_at.setdefault(_probe_of(deed), now + PROBE_S)
        return deed if is_news else None

    def put_off(self, ref: str, until: float) -> None:
        """A deed was refused for now."""
        deed = self._deeds.get(ref)
        if deed is not None and deed.stage is Stage.IN_FLIGHT:
            deed.not_before = until
            self._requeue([deed])

    def drop(self, ref: str) -> None:
        """Forget a deed."""
        deed = self._deeds.pop(ref, None)
        if deed is not None:
            self._leave(deed)

    def stored(self, chat: str, upto: int, now: float) -> None:
        """All of ours in `chat` up to `upto` is stored."""
        acked = self._acked.get(chat)
        if acked is None:
            return
        if (chat, "") in self._probe_at:
            self._probe_at[chat, ""] = now + PROBE_S
        for ref in [ref for ref, d in acked.items() if d.seq <= upto and not d.is_hide]:
            self.drop(ref)

    def disconnected(self) -> None:
        """What was not answered has to be offered again."""
        self._requeue(list(self._in_flight.values()))

    def new_epoch(self) -> None:
        """What was committed but not stored may be lost: offer it again."""
        acked = [deed for deeds in self._acked.values() for deed in deeds.values()]
        for deed in acked:
            deed.not_before = 0.0
        self._requeue(acked)

    def _requeue(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            self._move(deed, Stage.QUEUED)
        # Those that come back were put in before those that wait.
        queued = sorted(self._queued.values(), key=lambda deed: deed.number)
        self._queued = {deed.ref: deed for deed in queued}

    def _move(self, deed: Deed, stage: Stage) -> None:
        self._leave(deed)
        deed.stage = stage
        match stage:
            case Stage.QUEUED:
                self._queued[deed.ref] = deed
            case Stage.IN_FLIGHT:
                self._in_flight[deed.ref] = deed
            case Stage.ACKED:
                self._acked.setdefault(deed.chat, {})[deed.ref] = deed

    def _leave(self, deed: Deed) -> None:
        self._queued.pop(deed.ref, None)
        self._in_flight.pop(deed.ref, None)
        self._probe_at.pop((deed.chat, deed.ref), None)
        acked = self._acked.get(deed.chat)
        if acked is not None:
            acked.pop(deed.ref, None)
            if all(other.is_hide for other in acked.values()):
                self._probe_at.pop((deed.chat, ""), None)
            if not acked:
                del self._acked[deed.chat]

    def unstored(self, chats_max: int) -> dict[str, int]:
        """Return chats with acked deeds and the newest place of these; the latest chats."""
        newest: dict[str, int] = {}
        for chat, deeds in reversed(self._acked.items()):
            seqs = [deed.seq for deed in deeds.values() if not deed.is_hide]
            if seqs and len(newest) < chats_max:
                newest[chat] = max(seqs)
        return newest

    def will_be_told(self, chats: Iterable[str], now: float) -> None:
        """The server was asked about these chats and will send `stored`: do not ask again yet."""
        for chat in chats:
            if (chat, "") in self._probe_at:
                self._probe_at[chat, ""] = now + PROBE_S

    # ── asking whether it is stored ─────────────────────────────────────────────────────────────

    def next_probe(self, now: float) -> Deed | None:
        """Return an acked deed to offer again: its `stored` may have been lost.

        The same ref changes nothing. After the ack of a repeat comes how far the chat is stored;
        that of a hide says whether this one is.
        """
        for (chat, ref), at in self._probe_at.items():
            if at <= now:
                self._probe_at[chat, ref] = now + PROBE_AGAIN_S
                acked = self._acked[chat]
                if ref:
                    return acked[ref]
                others = (deed for deed in acked.values() if not deed.is_hide)
                return max(others, key=lambda deed: deed.seq)
        return None

    def list_acked(self, chat: str) -> list[Deed]:
        """Return what was acked in a chat and is not known to be stored."""
        return list(self._acked.get(chat, {}).values())

    def ask_soon(self, chat: str, now: float) -> None:
        """Ask about all that was acked in a chat, unless its `stored` comes before."""
        for deed in self.list_acked(chat):
            self._probe_at[_probe_of(deed)] = now + PROBE_S

    def ask_no_more(self, ref: str) -> None:
        """A repeat was refused for good: the deed may be of an epoch that is over."""
        deed = self._deeds.get(ref)
        if deed is not None:
            self._probe_at.pop(_probe_of(deed), None)

    def times(self) -> list[float]:
        """Return when what was put off is to be offered again, or something is to be asked."""
        put_off = [deed.not_before for deed in self._queued.values() if deed.not_before > 0]
        return [*put_off, *self._probe_at.values()]


def _probe_of(deed: Deed) -> tuple[str, str]:
    return deed.chat, deed.ref if deed.is_hide else ""
