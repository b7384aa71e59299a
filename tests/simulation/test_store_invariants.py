"""Invariants of the stores: each finds a violation that is planted in valid data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import zstandard

from chatserver.config import Settings
from chatserver.warm.schema.provisioning import make_create_request
from chatserver.warm.schema.tables import TABLES
from tests.simulation.dynamodb.tables import Table
from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.values import SortedSet, Stream
from tests.simulation.store_invariants import INVARIANTS, find_violations
from tests.simulation.stores.snapshot import Limits, Stores

NOW_S = 1_800_000_000
TS = NOW_S * 1_000_000
CHAT = "g-1"
PARTITION = "{p0}"
OBJECT = f"archive/v1/{CHAT}/{1:020}-{2:020}.tag.jsonl.zst"


def make_item(seq: int, sender: str, kind: str, body: str = "", **more: Any) -> dict[str, Any]:
    status = "event" if kind != "text" else "active"
    return {
        "chatid": CHAT, "seq": seq, "ts": TS + seq, "mid": f"m{seq}", "ref": f"r{seq}",
        "sender_id": sender, "kind": kind, "body": body, "rev": 1, "status": status,
        "status_ts": f"{status}#{TS + seq:020}", "sum": f"1.{more.get('rev', 1)}.00000000", **more,
    }  # fmt: skip


ITEMS = {
    1: make_item(1, "u0", "text", "one"),
    2: make_item(2, "u0", "member", user="u1", role="member"),
    3: make_item(3, "u0", "text", "new", rev=5, edited_seq=4, reactions={"u1": "+"}),
    4: make_item(4, "u0", "edit", "new", target=3),
    5: make_item(5, "u1", "reaction", "+", target=3),
    6: make_item(6, "u1", "text", "six"),
}
REDIS_NAMES = ("seq", "ts", "mid", "kind", "body", "rev", "reactions", "target", "user", "role")


def encode_value(value: Any) -> dict[str, Any]:
    match value:
        case int():
            return {"N": str(value)}
        case set():
            return {"NS": [str(each) for each in value]}
        case dict():
            return {"M": {name: encode_value(each) for name, each in value.items()}}
        case _:
            return {"S": value}


def encode_entry(seq: int) -> dict[str, Any]:
    """Return an entry as in Redis or a segment."""
    item = ITEMS[seq]
    entry = {name: item[name] for name in REDIS_NAMES if name in item}
    return {**entry, "chat": CHAT, "sender": item["sender_id"], "ref": item["ref"]}


class World:
    """Valid data of a group: six entries, the first two of them in the archive."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.objects: dict[str, bytes] = {}
        self.tables: dict[str, Table] = {}
        for table in TABLES:
            request = make_create_request(table, Settings().warm)
            self.tables[request["TableName"].removeprefix("chat_")] = Table(request)
        self._add_chat()
        self._add_archive()
        self._add_redis()

    def _add_chat(self) -> None:
        for seq in (3, 4, 5, 6):
            self.put("messages", ITEMS[seq])
        chat = {"kind": "group", "version": 2, "members": 2, "state": "ready"}
        self.put("directory", {"PK": f"c#{CHAT}", "SK": f"c#{CHAT}", **chat})
        for user, role, joined, read in (("u0", "owner", 0, 6), ("u1", "member", 2, 4)):
            marks = {"role": role, "joined": joined, "read": read, "received": 6}
            self.put("directory", {"PK": f"c#{CHAT}", "SK": f"m#{user}", **marks})
        self.change_member("u1", hidden={3})

    def _add_archive(self) -> None:
        lines = [b"{}", *(msgspec.json.encode(encode_entry(seq)) for seq in (1, 2))]
        content = zstandard.ZstdCompressor().compress(b"\n".join(lines))
        self.objects[OBJECT] = content
        segment = {
            "first": 1,
            "last": 2,
            "tag": "tag",
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        self.put("directory", {"PK": f"a#{CHAT}", "SK": f"s#{2:020}#{CHAT}", **segment})
        self.put("directory", {"PK": f"a#{CHAT}", "SK": f"a#{CHAT}", "last": 2})

    def _add_redis(self) -> None:
        head = {"gate": "E:2", "seq": 6, "ts": TS + 6, "stored": 6, "base": 0}
        self.set_hash(f"chat:{CHAT}", **head)
        self.set_hash(f"members:{CHAT}", u0="owner:0", u1="member:2")
        self.set_hash("epoch", epoch="E")
        self.set_hash("checkpoint", id="1-0")
        self.set_ref(CHAT, 6, TS + 6)
        self.set_hash("where", u0="gateway")
        self.set_hash("box:u0", **{f"r:{CHAT}": 6})
        self.set_hash("hidden:u1", **{CHAT: "3"})
        self.set_zset("gateways", gateway=NOW_S * 1000 + 3000)
        self.set_zset("online:u0", gateway=NOW_S * 1000 + 3000)
        self.keyspace.expiries[b"{p0}:online:u0"] = NOW_S * 1000 + 3000
        self.set_hash(f"over:{CHAT}", **{"3": msgspec.json.encode(encode_entry(3)).decode()})
        self.set_zset(f"revs:{CHAT}", **{"3": 5})
        for seq in (3, 4, 5, 6):
            entry = {name: v for name, v in encode_entry(seq).items() if name not in {"seq", "ts"}}
            blob = b"\n" + msgspec.json.encode(entry)[1:]
            self.append(f"log:{CHAT}", (seq, 0), b"%d" % (TS + seq), blob)
        self.append("inbox:u0", (0, 4), CHAT.encode(), b"1-3")
        self.append("inbox:u0", (0, 5), b"!", b',"kind":"read"')
        self.append("inbox:u0", (0, 7), CHAT.encode(), b"5-6")

    # changes

    def put(self, table: str, row: dict[str, Any]) -> None:
        self.tables[table].put({name: encode_value(value) for name, value in row.items()})

    def change_item(self, seq: int, **changes: Any) -> None:
        self.put("messages", {**ITEMS[seq], **changes})

    def _change(self, partition: str, sort: str, **changes: Any) -> None:
        key = {"PK": {"S": partition}, "SK": {"S": sort}}
        found = self.tables["directory"].find(key)
        assert found is not None
        changed = {name: encode_value(value) for name, value in changes.items()}
        self.tables["directory"].put({**found, **changed})

    def change_member(self, user: str, **changes: Any) -> None:
        self._change(f"c#{CHAT}", f"m#{user}", **changes)

    def change_segment(self, **changes: Any) -> None:
        self._change(f"a#{CHAT}", f"s#{2:020}#{CHAT}", **changes)

    def set_hash(self, key: str, **fields: Any) -> None:
        found = self.keyspace.values.setdefault(f"{PARTITION}:{key}".encode(), {})
        found.update({name.encode(): str(value).encode() for name, value in fields.items()})

    def set_ref(self, chat: str, seq: int, ts: int) -> None:
        found = self.keyspace.values.setdefault(f"{PARTITION}:chat:{chat}".encode(), {})
        found[b"#ref"] = seq.to_bytes(5) + ts.to_bytes(7) + b"\0"

    def expire(self, key: str) -> None:
        self.keyspace.expiries[f"{PARTITION}:{key}".encode()] = NOW_S * 1000 + 3000

    def set_zset(self, key: str, **scores: float) -> None:
        found = self.keyspace.values.setdefault(f"{PARTITION}:{key}".encode(), SortedSet())
        for member, score in scores.items():
            found.put(member.encode(), score)

    def append(self, key: str, place: tuple[int, int], *fields: bytes) -> None:
        name = f"{PARTITION}:{key}".encode()
        self.keyspace.values.setdefault(name, Stream()).append(place, list(fields))

    def find(self, log_min: int = 4) -> set[str]:
        """Return the names of the violated invariants."""
        limits = Limits(inbox_max=10, log_max=4, log_min=log_min)
        stores = Stores(self.keyspace, self.tables, self.objects, limits=limits, now_s=NOW_S)
        return {violation.rule for violation in find_violations(stores)}


def rewind_log(world: World) -> None:
    """Give the log an entry that differs from the stored one."""
    key = f"{PARTITION}:log:{CHAT}".encode()
    world.keyspace.values[key].entries[-1][1] = b'\n"mid":"other","body":"six","kind":"text"}'


def add_member(world: World) -> None:
    """Add a member who is not counted."""
    row = {"role": "member", "joined": 0, "read": 0, "received": 0}
    world.put("directory", {"PK": f"c#{CHAT}", "SK": "m#u2", **row})


PLANTED: dict[str, list[Callable[[World], object]]] = {
    "KEY_EXPIRY": [
        lambda world: world.keyspace.expiries.clear(),
        lambda world: world.expire("checkpoint"),
        lambda world: world.set_hash("unknown:u0", a=1),
    ],
    "KEY_OWNER": [lambda world: world.set_hash("members:g-2", u0="owner:0")],
    "NOTHING_WAITS": [
        lambda world: world.append("backlog", (1, 0), b"g", b"gateway"),
        lambda world: world.set_zset("undelivered", **{CHAT: 1}),
        lambda world: world.set_hash(f"turnover:{CHAT}", **{"2:u1": "in:2"}),
    ],
    "PROGRESS": [lambda world: world.set_hash("progress", **{CHAT: 7})],
    "CHANGES_FINISHED": [lambda world: world.set_zset("changing", **{f"{CHAT}:r2": 1})],
    "CHAT_HEAD": [
        lambda world: world.set_hash(f"chat:{CHAT}", seq=7),
        lambda world: world.set_hash(f"chat:{CHAT}", stored=5),
        lambda world: world.set_hash(f"chat:{CHAT}", ts=TS),
        lambda world: world.set_hash(f"chat:{CHAT}", gate="E:2:p"),
    ],
    "CHAT_LOG": [
        rewind_log,
        lambda world: world.set_hash(f"chat:{CHAT}", seq=7),
        lambda world: world.keyspace.values[b"{p0}:log:g-1"].delete((5, 0)),
    ],
    "CHAT_REFS": [
        lambda world: world.set_ref(CHAT, 6, TS),
        lambda world: world.expire(f"chat:{CHAT}"),
        lambda world: world.set_ref("g-evicted", 6, TS),
    ],
    "CHAT_OVERLAY": [
        lambda world: world.change_item(3, reactions={"u1": "-"}, rev=5),
        lambda world: world.set_zset(f"revs:{CHAT}", **{"3": 2}),
        lambda world: world.set_zset(f"revs:{CHAT}", **{"4": 5}),
    ],
    "CHAT_MEMBERS": [
        lambda world: world.set_hash(f"members:{CHAT}", u2="member:2"),
        lambda world: world.set_hash(f"chat:{CHAT}", gate="E:3"),
    ],
    "INBOX_POSITIONS": [
        lambda world: world.append("inbox:u0", (0, 9), CHAT.encode(), b"7"),
        lambda world: world.keyspace.values[b"{p0}:inbox:u0"].delete((0, 7)),
        lambda world: world.append("inbox:u0", (0, 80), CHAT.encode(), b"8-80"),
    ],
    "INBOX_ONCE": [lambda world: world.append("inbox:u0", (0, 8), CHAT.encode(), b"6")],
    "ROUTES": [
        lambda world: world.set_hash("where", u0="gateway,other"),
        lambda world: world.set_zset("gateways", gateway=1),
    ],
    "MARKS": [
        lambda world: world.set_hash("box:u0", **{f"r:{CHAT}": 7}),
        lambda world: world.change_member("u0", read=5),
    ],
    "HIDDEN": [lambda world: world.change_member("u1", hidden={2})],
    "ITEM_POSITIONS": [
        lambda world: world.put("messages", {**ITEMS[6], "ts": TS + 99}),
        lambda world: world.put("messages", {**ITEMS[6], "seq": 8, "ts": TS + 99}),
        lambda world: world.put("messages", {**ITEMS[6], "seq": 7, "ts": TS}),
    ],
    "ITEM_IDS": [
        lambda world: world.change_item(6, mid="m3"),
        lambda world: world.change_item(4, ref="r3"),
    ],
    "ITEM_INDEXES": [
        lambda world: world.change_item(6, status="deleted"),
        lambda world: world.change_item(6, status_ts=f"active#{TS:020}"),
        lambda world: world.change_item(6, receiver_id="u0"),
        lambda world: world.change_item(6, sum="1.2.00000000"),
    ],
    "ITEM_STATE": [
        lambda world: world.change_item(3, reactions={}),
        lambda world: world.change_item(3, rev=4),
        lambda world: world.change_item(3, edited_seq=5),
        lambda world: world.change_item(6, deleted="yes"),
        lambda world: world.change_item(5, target=4),
    ],
    "ITEM_EDITS": [lambda world: world.change_item(3, edited_seq=5)],
    "CHAT_ROWS": [
        lambda world: world.put("messages", {**ITEMS[6], "chatid": "g-2"}),
        add_member,
        lambda world: world.change_member("u0", received=7),
        lambda world: world.change_member("u1", hidden={9}),
    ],
    "CHAT_MEMBERSHIPS": [
        lambda world: world.change_item(6, kind="member", user="u1", role=""),
    ],
    "SEGMENTS": [
        lambda world: world.objects.clear(),
        lambda world: world.change_segment(sha256="other"),
        lambda world: world.change_segment(first=2),
        lambda world: world.put("directory", {"PK": f"a#{CHAT}", "SK": f"a#{CHAT}", "last": 3}),
    ],
    "ARCHIVED_ITEMS": [lambda world: world.put("messages", ITEMS[2])],
    "ARCHIVE_OBJECTS": [lambda world: world.objects.update({"archive/v1/g-1/other": b""})],
}  # fmt: skip


def test_valid_data_violates_nothing() -> None:
    assert World().find() == set()


def test_log_that_was_trimmed_while_redis_was_full_violates_nothing() -> None:
    """It then keeps fewer entries."""
    world = World()
    world.keyspace.values[f"{PARTITION}:log:{CHAT}".encode()].delete((4, 0))

    assert world.find(log_min=2) == set()
    assert world.find() == {"CHAT_LOG"}


def test_each_invariant_has_a_planted_violation() -> None:
    assert set(PLANTED) == set(INVARIANTS)


@pytest.mark.parametrize(
    ("name", "plant"), [(name, plant) for name, plants in PLANTED.items() for plant in plants]
)
def test_planted_violation_is_found(name: str, plant: Callable[[World], object]) -> None:
    """It may also violate other invariants."""
    world = World()

    plant(world)

    assert name in world.find()
