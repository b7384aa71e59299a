"""Scripts and their headers: callers pass names, and a wrong name is an error."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import chatserver
from chatserver.hot.redis.scripts import Script, Value, all_scripts, load_script

SCRIPTS = all_scripts()


def test_load_script_parses_keys_and_arguments_of_the_header() -> None:
    """Keys, arguments, item fields and trailing parameters, each in order."""
    script = load_script("commit_messages")

    assert script.keys == ("backlog", "undelivered", "where")
    limits = ("backlog_max", "inbox_max", "chat_backlog_max")
    assert script.args == ("epoch", "gateway", *limits)
    assert script.item_keys == ("chat", "members", "log")
    assert script.item_args == ("chat_id", "gate", "recipients", "messages")
    assert script.more_keys == ("inbox", "watchers")
    assert script.more_args == ("ref", "sender", "listed", "name", "blob")
    assert script.sha == hashlib.sha1(script.source.encode()).hexdigest()


def test_bind_returns_keys_and_arguments_in_the_order_of_the_script() -> None:
    """The order in which the caller names them does not matter."""
    script = load_script("record_persisted_seqs")
    items: list[dict[str, Value]] = [{"upto": 9, "chat": "c"}, {"chat": "d", "upto": 4}]

    names = {"progress": "p", "epoch": "e", "lease": "l"}
    keys, args = script.bind(names, {"epoch": "E", "token": 10}, items)

    assert keys == ["l", "e", "p"]
    assert args == [10, "E", "c", 9, "d", 4]


def test_bind_returns_keys_of_items_in_the_order_of_the_script() -> None:
    """They follow the keys of the partition."""
    script = load_script("append_to_inboxes")
    items: list[dict[str, Value]] = [
        {"upto": 9, "after": 3, "chat_id": "c", "user": "u1", "inbox": "i1", "box": "b1"},
        {"box": "b2", "inbox": "i2", "user": "u2", "chat_id": "d", "after": 0, "upto": 4},
    ]
    items = [{"epoch": "E", **item} for item in items]

    keys, args = script.bind({"where": "w"}, {"inbox_max": 10}, items)

    assert keys == ["w", "b1", "i1", "b2", "i2"]
    assert args == [10, "u1", "c", 3, 9, "E", "u2", "d", 0, 4, "E"]


@pytest.mark.parametrize(
    ("keys", "args"),
    [
        ({}, {"owner": "me", "ttl_ms": 1}),
        ({"lease": "k"}, {"owner": "me"}),
        ({"lease": "k", "other": "k"}, {"owner": "me", "ttl_ms": 1}),
        ({"lease": "k"}, {"owner": "me", "ttl_s": 1}),
        ({"owner": "k"}, {"lease": "me", "ttl_ms": 1}),
    ],
)
def test_bind_with_wrong_names_is_refused(keys: dict[str, str], args: dict[str, str | int]) -> None:
    """A mismatch between a caller and its script never reaches Redis."""
    with pytest.raises(TypeError, match=r"lease\.lua: expected"):
        load_script("acquire_lease").bind(keys, args)


def test_bind_with_wrong_item_is_refused() -> None:
    """Every item is checked, not only the first one."""
    item: dict[str, Value] = {
        "chat_id": "c", "read": 0, "received": 0, "since": "", "version": 1
    }  # fmt: skip
    short: dict[str, Value] = {"chat_id": "c", "read": 0}

    with pytest.raises(TypeError, match=r"load_user\.lua: expected item names"):
        keys: dict[str, Value] = {"box": "k", "large": "l", "epoch": "e"}
        load_script("load_user").bind(keys, {"epoch": "E1"}, [item, short])


def test_script_names_are_unique() -> None:
    """Features have their own folders of scripts, and a script is loaded by its name."""
    found = sorted(path.stem for path in Path(chatserver.__file__).parent.rglob("*.lua"))

    assert [script.name for script in SCRIPTS] == found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.name))
def test_script_header_has_summary_parameters_and_reply(script: Script) -> None:
    """Each script begins with its purpose, its parameters and its reply."""
    head = script.source.split("\n\n")[0].split("\nlocal ")[0]

    assert re.match(r"#!lua( flags=\S+)?\n-- [A-Z].*", script.source)
    assert re.search(r"^-- returns ", script.source, re.MULTILINE), head
    # Two scripts run arbitrary commands and have the keys of these commands.
    assert (
        script.keys or script.item_keys or script.name in {"read_only_transaction", "transaction"}
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.name))
def test_script_sets_no_globals(script: Script) -> None:
    """Redis refuses a script that sets globals; this test finds it earlier."""
    declared = set(re.findall(r"\blocal (?:function )?([\w, ]+)", script.source))
    local_names = {name.strip() for names in declared for name in names.split(",")}
    assigned = set(re.findall(r"^\s*([a-z_]\w*)(?:, [a-z_]\w*)* = ", script.source, re.MULTILINE))

    assert assigned <= local_names


def test_script_declares_whether_it_runs_on_a_full_redis() -> None:
    """A full Redis refuses only scripts that add data; the others run, so that it drains."""
    flags = {script.name: script.source.partition("\n")[0] for script in SCRIPTS}

    refused = {name for name, line in flags.items() if line == "#!lua"}
    reading = {name for name, line in flags.items() if line == "#!lua flags=no-writes"}
    draining = {name for name, line in flags.items() if line == "#!lua flags=allow-oom"}

    assert refused == {"commit_messages", "commit_change", "move_read_marks"}
    assert reading == {
        "find_push_needs",
        "read_memory_use",
        "read_only_transaction",
        "read_persisted",
    }
    assert refused | reading | draining == flags.keys()
