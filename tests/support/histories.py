"""Recorded histories of the client's state machine, which every SDK must replay exactly.

`tests/histories/*.jsonl` has the inputs and outputs of the Python `ClientState`. A line with a name
starts a history: the device and its bounds. Each further line is a call: `[method, arguments,
result]`. Names of methods and fields are those of the TypeScript SDK. Fields of frames and entries
are those of the wire, without fields that have their default.

`python -m tests.support.history_recorder` records them again.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from chatserver.client import saved_state
from chatserver.client.client_state import ClientState, QueuedEvent
from chatserver.client.events import Event
from chatserver.client.model import Bounds, Entry
from chatserver.client.outbox import OutboxEntry
from chatserver.errors import ChatError

FOLDER = Path(__file__).parents[1] / "histories"
Call = list[Any]  # method, arguments, result


@dataclasses.dataclass
class History:
    """The recorded calls of one device, from its creation."""

    name: str
    device: str
    bounds: dict[str, int]
    calls: list[Call]


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def encode(value: Any) -> Any:
    """Return a value in the format of the histories."""
    match value:
        case ChatError():
            return {"error": value.code, "temporary": value.temporary}
        case Entry():
            return encode_entry(msgspec.to_builtins(value))
        case QueuedEvent():
            return encode(value.event)
        case _ if isinstance(value, Event):
            return encode_event(value)
        case msgspec.Struct():
            return msgspec.to_builtins(value)
        case OutboxEntry():
            return {"ref": value.ref, "chat": value.chat, "fields": encode(value.fields)}
        case dict():
            return {key: encode(item) for key, item in value.items()}
        case list() | tuple():
            return [encode(item) for item in value]
        case _:
            return value


def encode_entry(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without fields that have their default value."""
    return {
        key: encode(value) for key, value in fields.items() if value not in (None, 0, False, {}, [])
    }


def encode_event(event: Event) -> dict[str, Any]:
    name = type(event).__name__
    fields = {camel(name): encode(getattr(event, name)) for name in event.__struct_fields__}
    return {"type": name[0].lower() + name[1:], **fields}


def describe(state: ClientState) -> dict[str, Any]:
    """Return the state of a client that applications can see."""
    return {
        "cursor": encode(state.cursor),
        "outbox": [
            [operation.ref, camel(operation.stage.value.replace(" ", "_"))]
            for operation in state.outbox
        ],
        "chats": [
            {
                "chat": chat.id,
                "kind": chat.kind,
                "name": chat.name,
                "members": chat.members,
                "slowS": chat.slow_s,
                "retentionS": chat.retention_s,
                "muted": chat.muted,
                "isLarge": chat.is_large,
                "isLeft": chat.is_left,
                "isEnded": chat.is_ended,
                "needsHistory": chat.needs_history,
                "shown": chat.log.shown,
                "top": chat.top,
                "read": chat.read,
                "unread": chat.unread,
                "marks": {user: [marks.read, marks.received] for user, marks in chat.marks.items()},
                "entries": encode(chat.log.entries()),
            }
            for chat in state.chats.values()
        ],
    }


@dataclasses.dataclass
class CachedChat:
    """A chat as the message store of the TypeScript SDK saves it."""

    chat: str
    info: Any
    shown: int | None
    top: int
    mids: list[tuple[int, str]]
    is_unverified: bool
    is_backfill_pending: bool
    entries: list[Entry]
    hidden: list[int]
    cleared_upto: int


def build_cache(state: ClientState, unconsumed: list[QueuedEvent]) -> list[CachedChat]:
    """Return all chats as they were before the unconsumed events."""
    firsts = saved_state._find_first_seqs(state, unconsumed) or {}
    return [_build_cached_chat(state, name, firsts) for name in list(state.chats)]


def _build_cached_chat(state: ClientState, name: str, firsts: dict[str, int]) -> CachedChat:
    chat = state.chats[name]
    log = chat.log
    shown = log.shown
    if shown is not None and name in firsts:
        shown = min(shown, firsts[name] - 1)
    upto = shown or 0
    entries = log._previous_entries if log.is_unverified else log._entries
    seqs = sorted(seq for seq in entries if seq <= upto)
    return CachedChat(
        name,
        chat.save(),
        shown,
        log.top,
        list(log.get_newest_identities(upto).items()),
        log.is_unverified,
        state.catch_up.is_scheduled(chat),
        [entries[seq] for seq in seqs],
        [seq for seq in seqs if seq in log._hidden | log._previous_hidden],
        chat.cleared_upto,
    )


def restore_cached(
    state: ClientState, old: ClientState, cached: list[CachedChat], unconsumed: list[QueuedEvent]
) -> None:
    """Restore a client with its messages, as after a reload of a page."""
    state.user, state.device = old.user, old.device
    state.cursor = unconsumed[0].before if unconsumed else old.cursor
    for saved in cached:
        chat = state.get_or_create_chat(saved.chat)
        chat.is_large = saved.info.is_large
        if saved.shown is not None:
            chat.log.restore(saved.shown, saved.top, saved.mids)
            chat.log.hide(saved.hidden)
            state.clear_chat(saved.chat, saved.cleared_upto)
            chat.log.put_cached(saved.entries)
        chat.restore(saved.info)
        if saved.is_unverified:
            chat.mark_unverified()
        if saved.shown is not None:
            state.catch_up.schedule(chat, is_forced=saved.is_backfill_pending)
    saved_state.restore(state, None, saved_state.encode_outbox(old, unconsumed))


class RecordedState(ClientState):
    """A client that records each call and its result."""

    def __init__(self, history: History, bounds: Bounds) -> None:
        super().__init__(history.device, bounds)
        self.history = history
        self._depth = 0

    def describe(self) -> None:
        """Record the state that applications can see."""
        self.history.calls.append(["describe", [], describe(self)])

    def restart(self, bounds: Bounds, unconsumed: list[QueuedEvent]) -> RecordedState:
        """Return the client after a reload; `unconsumed` are the events that were not consumed."""
        self.history.calls.append(["restart", [len(unconsumed)], None])
        fresh = RecordedState(self.history, bounds)
        fresh._depth = 1
        restore_cached(fresh, self, build_cache(self, unconsumed), unconsumed)
        fresh._depth = 0
        return fresh


def _record_calls(name: str) -> Callable[..., Any]:
    inner = getattr(ClientState, name)

    def call(self: RecordedState, *args: Any, **options: Any) -> Any:
        if self._depth:
            return inner(self, *args, **options)
        arguments = json.loads(json.dumps(encode([*args, *options.values()])))
        self._depth += 1
        try:
            result = inner(self, *args, **options)
        except ChatError as exc:
            self.history.calls.append([camel(name), arguments, encode(exc)])
            raise
        finally:
            self._depth -= 1
        self.history.calls.append([camel(name), arguments, encode(result)])
        return result

    return call


RECORDED = (  # methods of `ClientState`
    "build_hello",
    "handle_welcome",
    "handle_disconnect",
    "handle_frame",
    "tick",
    "get_next_tick",
    "enqueue",
    "send_request",
    "cancel_request",
    "notify",
    "watch",
    "unwatch",
    "pause",
    "apply_chat_list",
    "apply_history",
    "apply_info",
    "clear_chat",
    "remove_chat",
    "pop_frames",
    "pop_queued_events",
    "pop_answers",
)
for _name in RECORDED:
    setattr(RecordedState, _name, _record_calls(_name))


def start(name: str, device: str = "phone", **bounds: int) -> RecordedState:
    """Return a new client that records a history."""
    limits = {camel(key): value for key, value in bounds.items()}
    return RecordedState(History(name, device, limits, []), Bounds(**bounds))


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), name)


def replay(history: History) -> Iterator[tuple[Call, Any]]:
    """Replay a history; yield each call and its current result."""
    bounds = Bounds(**{snake(key): value for key, value in history.bounds.items()})
    state = ClientState(history.device, bounds)
    queued: list[QueuedEvent] = []
    for method, args, result in history.calls:
        actual: Any
        if method == "describe":
            actual = describe(state)
        elif method == "restart":
            unconsumed = queued[len(queued) - args[0] :]
            fresh = ClientState(history.device, bounds)
            restore_cached(fresh, state, build_cache(state, unconsumed), unconsumed)
            state, actual = fresh, None
        else:
            try:
                actual = _call(state, method, args)
            except ChatError as exc:
                actual = exc
            if method == "popQueuedEvents":
                queued += actual
        yield [method, args, result], json.loads(json.dumps(encode(actual)))


def _call(state: ClientState, method: str, args: list[Any]) -> Any:
    match method, args:
        case "enqueue", [operation, now]:
            return state.enqueue(OutboxEntry(**operation), now)
        case "pause", [now, is_paused]:
            return state.pause(now, is_paused=is_paused)
        case "applyHistory", [page, is_newest, *before]:
            return state.apply_history(page, is_newest=is_newest, before=before[0])
        case _:
            assert snake(method) in RECORDED, method
            return getattr(state, snake(method))(*args)


def dump(histories: list[History]) -> str:
    """Encode histories as JSON lines."""
    lines = []
    for history in histories:
        head = {"history": history.name, "device": history.device, "bounds": history.bounds}
        lines += [head, *history.calls]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def load(text: str) -> list[History]:
    """Decode the histories of a file."""
    histories: list[History] = []
    for line in map(json.loads, text.splitlines()):
        if isinstance(line, dict):
            histories.append(History(line["history"], line["device"], line["bounds"], []))
        else:
            histories[-1].calls.append(line)
    return histories
