"""Invariants of the data in Redis when nothing waits to be delivered or persisted.

Each function yields the violations of one invariant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.simulation.stores.snapshot import Chat, Stores


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keys of each tag that always have a TTL, that never have one, and that may have one.
_EXPIRING: Final = {
    "p": _names(
        "watchers online seen watched pushed limit room login-attempts guesses"
        " tokens answer answers preview job file"
    ),
    "gw": _names("stream"),
    "cost": _names("units reads writes flushes"),
    "figures": _names("log"),
    "jwks": _names("keys fetching"),
}
_PERMANENT: Final = {
    "p": _names(
        "members turnover log over revs uncounted expiring asking blocks inbox box hidden"
        " large epoch backlog checkpoint progress asked due since dead undelivered where idle"
        " gateways changing hooks hooks-late hooks-dead lease counts"
    ),
    "rpc": _names("calls"),
    "search": _names("calls"),
    "audit": _names("rounds findings"),
    "media": _names("jobs slow held images turns"),
    "social": _names("wake"),
}
_EITHER: Final = {"p": {"deltas", "revoked", "pushing", "chat"}}  # an evicted chat has one
# Keys that exist only together with another key of the same chat or user.
_OWNERS: Final = {
    **dict.fromkeys(
        ("members", "log", "over", "revs", "uncounted", "expiring", "turnover"), "chat"
    ),
    "large": "box",
}
_OVERDUE_MS: Final = 10_000  # longest time until `repair` finishes a change after its deadline
_INBOX_SLACK: Final = 48  # events beyond `inbox_max`: trimming is rare, and removes whole entries


def find_keys_with_wrong_expiry(stores: Stores) -> Iterator[str]:
    for text, key in stores.keys.items():
        has_expiry = text in stores.keyspace.expiries
        if key.kind in _EITHER.get(key.tag, ()):
            continue
        if key.kind in _EXPIRING.get(key.tag, ()):
            if not has_expiry:
                yield f"{text.decode()} has no TTL"
        elif key.kind not in _PERMANENT.get(key.tag, ()):
            yield f"{text.decode()} is not in the data model"
        elif has_expiry:
            yield f"{text.decode()} has a TTL"


def find_keys_without_owner(stores: Stores) -> Iterator[str]:
    for kind, owner in _OWNERS.items():
        for name in stores.names_of(kind):
            if not stores.has(owner, name):
                yield f"{kind}:{name} exists, but {owner}:{name} does not"


def find_waiting_entries(stores: Stores) -> Iterator[str]:
    """Nothing waits: backlog, fan-outs and notices."""
    for partition in stores.names_of("backlog"):
        if stores.stream_of("backlog", partition):
            yield f"backlog of {partition} has entries"
    for partition in stores.names_of("undelivered"):
        yield f"undelivered of {partition}: {sorted(stores.zset_of('undelivered', partition))}"
    for chat in stores.names_of("turnover"):
        yield f"notices of {chat} wait: {stores.hash_of('turnover', chat)}"


def find_leftover_progress(stores: Stores) -> Iterator[str]:
    """Progress beyond the checkpoint does not exceed what is stored."""
    for partition in stores.names_of("progress"):
        for name, upto in stores.hash_of("progress", partition).items():
            chat = stores.chats.get(name)
            if chat is None or int(upto) > chat.newest:
                yield f"progress of {name} is {upto}, beyond its stored entries"


def find_overdue_changes(stores: Stores) -> Iterator[str]:
    for partition in stores.names_of("changing"):
        for name, deadline_ms in stores.zset_of("changing", partition).items():
            if deadline_ms + _OVERDUE_MS < stores.now_ms:
                late_s = (stores.now_ms - deadline_ms) / 1000
                yield f"the change {name} was due {late_s:.1f} s ago"


def find_wrong_heads(stores: Stores) -> Iterator[str]:
    """A loaded chat has the newest stored entry, and all its entries are delivered and stored."""
    for chat in _iter_loaded(stores):
        head, newest = chat.head, chat.newest
        for field in ("seq", "stored"):
            if int(head.get(field, 0)) != newest:
                yield f"{field} of {chat.name} is {head.get(field)}, its newest entry is {newest}"
        if newest and int(head["ts"]) != chat.entries[newest]["ts"]:
            yield f"ts of {chat.name} is {head['ts']}, its newest {chat.entries[newest]['ts']}"
        if head["gate"].endswith(":p"):
            yield f"{chat.name} has a pending fan-out"


def find_wrong_refs(stores: Stores) -> Iterator[str]:
    """The refs of a loaded chat have the positions of its entries; only an evicted chat expires."""
    for chat in _iter_loaded(stores):
        for seq, ts in stores.list_refs(chat.name):
            if chat.entries.get(seq, {}).get("ts") != ts:
                yield f"a ref of {chat.name} has the position {seq}:{ts}, which no entry has"
    for name in stores.names_of("chat"):
        is_evicted = not stores.hash_of("chat", name)
        if is_evicted != stores.has_expiry("chat", name):
            yield f"{name} is {'' if is_evicted else 'not '}evicted; its TTL is wrong"


def find_wrong_logs(stores: Stores) -> Iterator[str]:
    """The log has the newest entries since the chat was loaded, as they are stored."""
    for chat in _iter_loaded(stores):
        head, log, over = chat.head, stores.list_log(chat.name), stores.list_overlay(chat.name)
        oldest = int(head["seq"]) - stores.limits.log_max
        for seq, entry in log.items():
            if seq <= oldest:
                yield f"the log of {chat.name} still has {seq} of {head['seq']}"
            if seq not in over:
                yield from _compare(chat, seq, entry)
        kept = int(head["seq"]) - stores.limits.log_min
        for seq in range(max(int(head["base"]), kept) + 1, int(head["seq"]) + 1):
            if seq not in log and seq not in over:
                yield f"neither log nor overlay of {chat.name} has {seq}"


def find_wrong_overlays(stores: Stores) -> Iterator[str]:
    """The overlay has the state of entries that is stored, until the log lost the change."""
    for chat in _iter_loaded(stores):
        over, revs = stores.list_overlay(chat.name), stores.zset_of("revs", chat.name)
        if set(map(str, over)) != set(revs):
            yield f"over and revs of {chat.name} differ: {sorted(over)}, {sorted(revs)}"
        oldest = int(chat.head["seq"]) - stores.limits.log_max
        for at, rev in revs.items():
            if rev <= oldest:
                yield f"the overlay of {chat.name} still has {at}, changed by {rev:.0f}"
        for seq, state in over.items():
            if not isinstance(state, int):
                yield from _compare(chat, seq, state)


def _compare(chat: Chat, seq: int, state: dict[str, object]) -> Iterator[str]:
    stored = chat.entries.get(seq)
    if stored is None:
        yield f"{chat.name}#{seq} is in Redis only"
        return
    for name, default in (("mid", ""), ("ts", 0), ("body", ""), ("rev", 1), ("reactions", {})):
        ours, theirs = state.get(name) or default, stored.get(name) or default
        if ours != theirs:
            yield f"{name} of {chat.name}#{seq} is {ours!r} in Redis, {theirs!r} when stored"


def find_wrong_members(stores: Stores) -> Iterator[str]:
    """A loaded chat has the members and the version of `directory`."""
    for chat in _iter_loaded(stores):
        if chat.is_unused_direct:
            continue
        listed = stores.hash_of("members", chat.name)
        stored = {user: f"{row['role']}:{row['joined']}" for user, row in chat.members.items()}
        if listed != stored:
            yield f"members of {chat.name}: {listed} in Redis, {stored} in DynamoDB"
        version = chat.head["gate"].split(":")[1]
        if int(version) != chat.row["version"]:
            yield f"version of {chat.name}: {version} in Redis, {chat.row['version']} in DynamoDB"


def find_inbox_gaps(stores: Stores) -> Iterator[str]:
    """The positions of an inbox are contiguous, and are at most `inbox_max`."""
    for inbox in stores.iter_inboxes():
        for (_, before, *_), (first, *_) in zip(inbox.events, inbox.events[1:], strict=False):
            if first != before + 1:
                yield f"the inbox of {inbox.user} has {first} after {before}"
        size = inbox.last - inbox.events[0][0] + 1 if inbox.events else 0
        if inbox.events and inbox.events[-1][1] != inbox.last:
            yield f"the inbox of {inbox.user} lacks its newest event {inbox.last}"
        if size > stores.limits.inbox_max + _INBOX_SLACK:
            yield f"the inbox of {inbox.user} has {size} events, the limit is exceeded"


def find_repeated_events(stores: Stores) -> Iterator[str]:
    """No inbox has an entry of a chat twice, or after a later one."""
    if stores.has_lost:
        return  # the positions of lost entries were assigned again
    for inbox in stores.iter_inboxes():
        newest: dict[str, int] = {}
        for first, last, chat, value in inbox.events:
            if chat == "!":
                continue
            begin = int(value) - (last - first)
            if begin <= newest.get(chat, 0):
                yield f"the inbox of {inbox.user} has {chat}#{begin} after #{newest[chat]}"
            newest[chat] = int(value)


def find_wrong_routes(stores: Stores) -> Iterator[str]:
    """`where` has the gateways in `online`, which are alive."""
    for partition in stores.names_of("where"):
        where = stores.hash_of("where", partition)
        alive = {
            name for name, ms in stores.zset_of("gateways", partition).items() if ms > stores.now_ms
        }
        for user, gateways in where.items():
            if user.startswith("-"):
                continue  # it makes the hash a hash table
            online = set(stores.zset_of("online", user))
            if set(gateways.split(",")) != online:
                yield f"{user} is at {gateways}, online at {sorted(online)}"
            if not online & alive:
                yield f"{user} is only at gateways that are down: {gateways}"


def find_wrong_marks(stores: Stores) -> Iterator[str]:
    """Read and received marks are stored, and not beyond the newest entry."""
    for user in stores.names_of("box"):
        box = stores.hash_of("box", user)
        for field, text in box.items():
            kind, _, name = field.partition(":")
            chat = stores.chats.get(name)
            if kind not in "rd" or chat is None or user not in chat.members:
                continue
            stored = chat.members[user]["read" if kind == "r" else "received"]
            if not int(text) <= stored <= chat.newest:
                yield f"{field} of {user} is {text}, stored {stored} of {chat.newest}"


def find_wrong_hidden(stores: Stores) -> Iterator[str]:
    """Redis and `directory` hide the same messages from a user."""
    for user in stores.names_of("hidden"):
        for name, text in stores.hash_of("hidden", user).items():
            chat = stores.chats.get(name)
            if name == "!" or chat is None or user not in chat.members:
                continue
            hidden = {int(seq) for seq in text.split(",") if seq}
            stored = chat.members[user].get("hidden", set())
            for seq in sorted(hidden ^ stored):
                where = "Redis" if seq in hidden else "DynamoDB"
                yield f"{name}#{seq} is hidden from {user} in {where} only"


def _iter_loaded(stores: Stores) -> Iterator[Chat]:
    for chat in stores.chats.values():
        if chat.head:
            yield chat
