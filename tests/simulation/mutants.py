"""Mutants: faults planted in the product, which the simulation must find.

A mutant replaces a text in a Lua script or in the source of a function. It exists only in the
process of one run.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any, Final, NamedTuple

import chatserver
from tests.simulation.redis import scripting


class Mutant(NamedTuple):
    """A planted fault. `target`: ``lua`` for a text in any script, or ``module:Class.method``."""

    name: str
    target: str
    old: str
    new: str


_SDK: Final = "chatserver.client.outbox:Outbox"
_PERSIST: Final = "workers.persist.worker:PersistWorker"

_INDEXER: Final = "chatserver.features.search.worker.indexer:Indexer"

MUTANTS: Final = (
    Mutant(
        "commit_without_dedupe",
        "lua",
        "local known, reply_to = head[4 + m] or (new_refs and new_refs[ref]), 0",
        "local known, reply_to = nil, 0",
    ),
    Mutant(
        "commit_seq_twice",
        "lua",
        "seq, ts = seq + 1, ts + 1\n        if now > ts",
        "seq, ts = (seq % 7 == 6 and seq or seq + 1), ts + 1\n        if now > ts",
    ),
    Mutant(
        "commit_for_strangers",
        "lua",
        "elseif not (is_listed or status) then",
        "elseif false then",
    ),
    Mutant(
        "commit_without_backlog",
        "lua",
        "if c > 2 then call('XADD', KEYS[1], '*', unpack(committed)) end",
        "if c > 2 and c < 6 then call('XADD', KEYS[1], '*', unpack(committed)) end",
    ),
    Mutant(
        "epoch_survives_restart",
        "lua",
        "if had[1] and ARGV[2] ~= '' and had[2] == ARGV[2] then",
        "if had[1] then",
    ),
    Mutant(
        "chat_loaded_in_any_epoch",
        "lua",
        "if call('HGET', KEYS[7], 'epoch') ~= ARGV[1] then return 3 end",
        "",
    ),
    Mutant(
        "chat_without_floor",
        "lua",
        "local seq, ts = tonumber(ARGV[2]), tonumber(ARGV[3])\nlocal stored",
        "local seq, ts = math.max(tonumber(ARGV[2]) - 1, 0), tonumber(ARGV[3])\nlocal stored",
    ),
    Mutant(
        "inbox_delivery_repeated",
        "lua",
        "local seq = math.max(tonumber(had), tonumber(ARGV[a + 2]))",
        "local seq = tonumber(ARGV[a + 2])",
    ),
    Mutant(
        "fan_out_forgotten",
        "lua",
        "if is_far or not is_inline then",
        "if is_far then",
    ),
    Mutant(
        "read_mark_moves_back",
        "lua",
        "local new_read = math.max(read, tonumber(ARGV[3]))",
        "local new_read = tonumber(ARGV[3])",
    ),
    Mutant(
        "checkpoint_without_lease",
        "lua",
        "if call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end\n"
        "if call('HGET', KEYS[2], 'epoch') ~= ARGV[2] then return 0 end\n"
        "if call('HGET', KEYS[3], 'id')",
        "if call('HGET', KEYS[3], 'id')",
    ),
    Mutant(
        "hidden_not_in_backlog",
        "lua",
        "call('HSET', KEYS[1], '!', call('XADD', KEYS[2], '*', 'c', chat, 'u', user, 'x', seq))",
        "call('HSET', KEYS[1], '!', '1-1')",
    ),
    Mutant(
        "commit_without_log",
        "lua",
        "call('XADD', KEYS[k + 2], seq_text .. '-0', ts_text, ARGV[at + 4])",
        "if seq % 5 ~= 0 then call('XADD', KEYS[k + 2], seq_text .. '-0', ts_text,"
        " ARGV[at + 4]) end",
    ),
    Mutant("commit_overtakes_fan_out", "lua", "'gate', head[3] .. ':p'", "'gate', head[3]"),
    Mutant(
        "change_without_backlog",
        "lua",
        "call('XADD', KEYS[6], '*', 'g', ARGV[2], seq_text .. ':' .. ts_text, place .. tail)",
        "if seq % 3 ~= 0 then call('XADD', KEYS[6], '*', 'g', ARGV[2], seq_text .. ':' .. ts_text,"
        " place .. tail) end",
    ),
    Mutant(
        "edit_by_anyone",
        "lua",
        "elseif kind == 'edit' and message.sender ~= sender",
        "elseif false",
    ),
    Mutant(
        "change_of_any_message",
        "lua",
        "if ARGV[17] ~= '' and message.ref ~= ARGV[17] then return {11} end",
        "",
    ),
    Mutant(
        "hide_of_any_message",
        "chatserver.service.messaging.message_changes:MessageChangeService._hide",
        "if frame.target_ref and",
        "if False and",
    ),
    Mutant(
        "deleted_text_stays",
        "lua",
        "message = tombstone_of(message, seq)\n  call('XDEL', log, target .. '-0')",
        "message = tombstone_of(message, seq)\n  message.body = ARGV[11]",
    ),
    Mutant("removed_member_stays", "lua", "call('HDEL', KEYS[2], user)", "local _ = user"),
    Mutant("lease_for_everyone", "lua", "if not is_free then return 0 end", ""),
    Mutant(
        "log_trimmed_before_write",
        "lua",
        "local first = math.min(upto, seq - log_max) + 1",
        "local first = seq - log_max + 1",
    ),
    Mutant(
        "archive_removes_first",
        "workers.archive.archiver:Archiver._archive_segment",
        "await self._record_positions(run",
        "await self._archivable.remove(removed, DELETES_IN_FLIGHT_MAX)\n"
        "    await self._record_positions(run",
    ),
    Mutant(
        "sdk_cursor_off_by_one",
        "chatserver.client.client_state:ClientState._handle_event",
        "position != Cursor(cursor.epoch, cursor.seq + 1)",
        "position.epoch != cursor.epoch or position.seq > cursor.seq + 2",
    ),
    Mutant(
        "checkpoint_before_write",
        f"{_PERSIST}._enqueue",
        "self._open.append(batch)",
        "self._open.append(batch); await self._backlog.checkpoint(self._lease, batch.last)",
    ),
    Mutant(
        "stored_before_write",
        f"{_PERSIST}._enqueue",
        'failpoint("persist.before_write")',
        "await self._publish_stored([w for p in pieces for w in p.writes],"
        " [w for p in pieces for w in p.writes])",
    ),
    Mutant("sdk_keeps_acks_at_epoch", f"{_SDK}.requeue_acked", "self._requeue(acked)", "pass"),
    Mutant(
        "sdk_forgets_unanswered",
        f"{_SDK}.requeue_unanswered",
        "self._requeue(list(self._in_flight.values()))",
        "self._in_flight.clear()",
    ),
    Mutant("sdk_stored_off_by_one", f"{_SDK}.record_stored", "d.seq <= upto", "d.seq <= upto + 1"),
    Mutant(
        "history_skips_an_entry",
        "chatserver.service.history.sync:DeviceSync.list_missed",
        "if entries[0].seq != after + 1:",
        "if entries[0].seq < after + 1:",
    ),
    Mutant(
        "push_skips_first_message",
        "chatserver.features.push.worker.push_dispatcher:PushDispatcher._list_new",
        "if entry.seq >= due.since]",
        "if entry.seq > due.since]",
    ),
    Mutant(
        "erasure_skips_edits",
        "chatserver.features.privacy.worker.erasure:Erasure._run_erasure_pass",
        'if not has_text(entry) or (entry.kind == "edit" and number == 0):',
        'if not has_text(entry) or entry.kind == "edit" or entry.seq % 5 == 4:',
    ),
    Mutant(
        "index_without_edits",
        f"{_INDEXER}._apply",
        "lambda: self._engine.apply(changes, state)",
        "lambda: (changes.edits.clear(), self._engine.apply(changes, state))",
    ),
    Mutant(
        "index_position_before_documents",
        f"{_INDEXER}._index_new",
        "    await self._apply(changes)\n",
        "    await self._apply(IndexChanges())\n"
        "        await asyncio.sleep(0.05)\n"
        "        await self._apply(changes)\n",
    ),
    Mutant(
        "index_without_catch_up",
        f"{_INDEXER}._start",
        "if position and not (resumed.is_complete and is_known):",
        "if False:",
    ),
)
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}


def install(name: str) -> None:
    """Plant a fault in this operating system process."""
    mutant = BY_NAME[name]
    found = prepare(mutant)
    if found is None:
        scripting.MUTATIONS.append((mutant.old.encode(), mutant.new.encode()))
    else:
        owner, method, function = found
        setattr(owner, method, function)


def prepare(mutant: Mutant) -> tuple[Any, str, Any] | None:
    """Return a class, the name of a method and its replacement; None for a script.

    Raises:
        AssertionError: the target does not have the text.
    """
    if mutant.target == "lua":
        scripts = Path(chatserver.__file__).parent.rglob("*.lua")
        is_found = any(mutant.old in path.read_text() for path in scripts)
        assert is_found, f"{mutant.name}: in no script"
        return None
    module_name, _, path = mutant.target.partition(":")
    owner_name, _, method = path.partition(".")
    module = importlib.import_module(module_name)
    owner = getattr(module, owner_name)
    return owner, method, _rewrite(module, getattr(owner, method), mutant)


def _rewrite(module: Any, function: Any, mutant: Mutant) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    assert mutant.old in source, f"{mutant.name}: {mutant.old!r} is not in {mutant.target}"
    changed: dict[str, Any] = {}
    code = compile(source.replace(mutant.old, mutant.new), mutant.name, "exec")
    exec(code, vars(module), changed)
    return changed[function.__name__]
