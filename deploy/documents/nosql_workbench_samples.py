"""Example items for the NoSQL Workbench model: a small team and its chats.

Alice, Bob and Eve are users; Alice and Bob have a direct chat, and all three are or were in the
group Team. The server's own codecs encode the items. Features add examples of their own rows
(`chatserver.features`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from chatserver.domain.access.logins import Login
from chatserver.domain.archive_segments import TRAIL_PREFIX, ArchiveSegment, Restored
from chatserver.domain.ids import ChatId, Seq, Ts
from chatserver.domain.invitation_rules import Invitation
from chatserver.domain.membership_periods import FormerMember, Period
from chatserver.domain.write_sharding import Layout, ShardFloor, ShardingPeriod
from chatserver.encryption.key_ring import StoredKey
from chatserver.encryption.key_wrapping import WrappedKey
from chatserver.feature_modules import iter_feature_modules
from chatserver.protocol.frames import Ai, Attachment, Message
from chatserver.protocol.message_change_effects import build_shredded_tombstone
from chatserver.warm.api_keys import KEY, KeyRow
from chatserver.warm.archive import manifests, restored_ranges
from chatserver.warm.chats import directory_items, legal_holds
from chatserver.warm.chats.directory_items import (
    MEMBER,
    READY,
    USER,
    StoredChat,
    StoredMember,
    User,
    describe_origin,
    encode_chat,
    row_key,
    user_key,
)
from chatserver.warm.chats.logins import LOGIN
from chatserver.warm.chats.moderation import BAN, BLOCK, REPORT, Ban, MessageReport, UserBlock
from chatserver.warm.chats.stored_invitations import INVITATION, TRUST_PREFIX
from chatserver.warm.dynamo.client import Item
from chatserver.warm.encryption.data_keys import PARTITION, encode_key
from chatserver.warm.messages import removed_message_markers
from chatserver.warm.messages.active_days import DaySet, encode_days, get_day
from chatserver.warm.messages.long_bodies import build_pointer
from chatserver.warm.messages.messages import PersistItem, encode_item
from chatserver.warm.messages.sharded_chats import HORIZON_KEY, LAYOUTS_KEY
from chatserver.warm.schema.active_version import (
    PROCESS,
    SchemaProcess,
    build_key,
    make_schema_item,
)
from chatserver.warm.schema.directory_attributes import (
    EncryptionField,
    SchemaField,
    ShardField,
    StreamField,
)
from chatserver.warm.schema.migrations import progress_and_lock as migrations
from chatserver.warm.schema.tables import (
    DIRECTORY,
    MESSAGES,
    DirectoryField,
    MessageField,
    SegmentField,
    TableSchema,
    UserPositionField,
)
from chatserver.warm.tenant_states import TENANT_STATE, TenantState

# Fixed timestamps, so that each run generates the same NoSQL Workbench model.
TS: Final = 1_795_000_000_000_000
MS: Final = TS // 1000
S: Final = MS // 1000

DIRECT, TEAM, LEFT, OLD, BUSY = "d-alice-bob", "g-team", "g-walks", "g-archived", "g-busy"
SESSION: Final = "01KAJ5W3N0TBJ8QW6X1V7ZC2YD"
_AI_RESPONSE: Final = Ai("echo", "done", 12, 4)
_SEGMENT: Final = ArchiveSegment(
    ChatId(OLD), Seq(1), Seq(1000), Ts(TS - 9_000_000_000), Ts(TS - 8_000_000_000),
    412_000, 51_200, "2c26b46b68ffc68ff99b453c1d304134", "k3v9",
)  # fmt: skip


def samples(table: TableSchema) -> Iterable[Item]:
    """Return example items for a table: every kind of row, and every attribute of messages."""
    for module in iter_feature_modules("sample_items"):
        yield from module.sample_items(table)
    if table is MESSAGES:
        yield from _make_messages()
    elif table is DIRECTORY:
        yield from _make_users()
        yield from _make_chats()
        yield from _make_moderation()
        yield from _make_archive()
        yield from _make_operations()


def _make_number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def _make_message(seq: int, sender: str, kind: str, body: str, **fields: Any) -> Message:
    ts, chat = TS + seq * 1_000_000, fields.pop("chat", DIRECT)
    return Message(seq, ts, chat, f"M{seq}", sender, f"r{seq}", kind, body, **fields)


def _make_messages() -> Iterable[Item]:
    picture = Attachment("f1", "sea.png", "image/png", 1024)
    edited = {"rev": 4, "edited_ts": TS + 4_000_000, "edited_seq": 4}
    direct = [
        _make_message(1, "alice", "text", "Hello, Bob", reactions={"bob": "👍"}, **edited),
        _make_message(2, "bob", "text", "Look at the sea!", reply_to=1, attachments=[picture]),
        _make_message(3, "alice", "text", "", deleted=True, rev=6),
        _make_message(4, "alice", "edit", "Hello, Bob", target=1),
        _make_message(5, "alice", "text", "The code is 4711", expires_at=S + 60),
        _make_message(6, "alice", "delete", "", target=3),
        _make_message(7, "bob", "reaction", "👍", target=1),
    ]
    for message in direct:
        yield encode_item(PersistItem(message, "bob" if message.sender == "alice" else "alice"))
    long = _make_message(8, "bob", "text", "")
    yield encode_item(PersistItem(long, "alice")) | build_pointer(b"a very long text")
    restored = _make_message(9, "bob", "text", "From long ago")
    restored_until = {MessageField.RESTORED: _make_number(S)}
    yield encode_item(PersistItem(restored, "alice")) | restored_until
    lost = build_shredded_tombstone(_make_message(10, "bob", "text", "Lost with its key"))
    yield encode_item(PersistItem(lost, "alice"))
    yield removed_message_markers.encode_marker(direct[4])
    yield legal_holds.encode_copy(_make_message(1, "alice", "text", "Hello, Bo"))
    yield from _make_group_messages()


def _make_group_messages() -> Iterable[Item]:
    banned: dict[str, Any] = {"user": "eve", "role": "", "banned": True}
    muted: dict[str, Any] = {"user": "eve", "role": "member", "muted_until": 0}
    group = [
        _make_message(1, "alice", "text", "Welcome", chat=TEAM),
        _make_message(2, "alice", "update", "", name="Team", chat=TEAM),
        _make_message(3, "alice", "member", "", chat=TEAM, **muted),
        _make_message(4, "alice", "member", "", chat=TEAM, **banned),
        _make_message(1, "alice", "text", "What is the tide today?", chat=SESSION),
        _make_message(2, "ai-ada", "text", "Low at six", reply_to=1, ai=_AI_RESPONSE, chat=SESSION),
    ]
    for message in group:
        yield encode_item(PersistItem(message, None))
    announcement = _make_message(5, "alice", "text", "Stand-up at ten", chat=TEAM)
    yield encode_item(PersistItem(announcement, None)) | {MessageField.PINNED: {"BOOL": True}}
    for seq in (1, 2):
        item = encode_item(PersistItem(_make_message(seq, "bob", "text", "Goal!", chat=BUSY), None))
        yield item | {MessageField.CHAT: {"S": f"{BUSY}#{seq % 2}"}}


def _make_users() -> Iterable[Item]:
    for user, name in (("alice", "Alice"), ("bob", None), ("eve", "Eve")):
        yield USER.encode(User(user, name, MS))
    yield LOGIN.encode(Login("alice", "phone", "Phone", MS, MS + 60_000, "c2VlZA", S + 2_592_000))
    key = KeyRow("k1", "billing", MS, frozenset({"chats:read", "users:read"}), "9f86d081884c7d65")
    yield KEY.encode(key)
    invitation = Invitation("eve", LEFT, "alice", "member", "Walks", MS, S + 604_800)
    yield INVITATION.encode(invitation)
    yield row_key(user_key("bob"), TRUST_PREFIX + "alice") | {
        DirectoryField.CREATED: _make_number(MS)
    }
    former = FormerMember(Period(2, 40), "M40", 38, (Period(1, 1),), hidden=(7,))
    yield directory_items.encode_former(LEFT, "bob", former)
    positions = {UserPositionField.SENT_TS: _make_number(_SEGMENT.last_ts)}
    positions[UserPositionField.RECEIVED_TS] = _make_number(_SEGMENT.first_ts)
    yield row_key(user_key("alice"), "archive#alice") | positions
    yield row_key(user_key("alice"), f"{TRAIL_PREFIX}{OLD}#{1000:020d}")


def _make_chats() -> Iterable[Item]:
    day = get_day(TS)
    for chat, users in (
        (
            StoredChat(DIRECT, "direct", None, 1, MS, count=2, users=("alice", "bob")),
            ("alice", "bob"),
        ),
        (StoredChat(TEAM, "group", "Team", 4, MS, count=2), ("alice", "bob")),
        (StoredChat(LEFT, "group", "Walks", 9, MS, count=1, history="all"), ("alice",)),
    ):
        roles: dict[str, Any] = dict.fromkeys(users, "member")
        if chat.kind == "group":
            roles["alice"] = "owner"
        yield encode_chat(chat, READY, describe_origin(chat.kind, chat.name, roles))
        for user, role in roles.items():
            yield MEMBER.encode(StoredMember(chat.chat, user, role, joined=1, read=2, received=2))
        yield encode_days(chat.chat, DaySet(day - 6).add(day - 6).add(day - 1).add(day))


def _make_moderation() -> Iterable[Item]:
    yield BAN.encode(Ban(TEAM, "eve", "alice", MS))
    yield BLOCK.encode(UserBlock("eve", MS), owner="bob")
    report = MessageReport(TEAM, 1, "bob", MS, "spam")
    yield from (REPORT.encode(report), row_key(*report.line_key), row_key(*report.link_key))
    hold = legal_holds.Hold(DIRECT, "case 17", "k1", MS, "in_force")
    yield from (legal_holds.HOLD.encode(hold), row_key(legal_holds.HOLDS, DIRECT))


def _make_archive() -> Iterable[Item]:
    partition = f"a#{OLD}"
    last = {
        SegmentField.LAST: _make_number(1000),
        SegmentField.LAST_TS: _make_number(_SEGMENT.last_ts),
    }
    yield row_key(partition, partition) | last
    yield manifests.SEGMENT.encode(_SEGMENT)
    replaced = manifests.ORPHAN.encode(dataclasses.replace(_SEGMENT, tag="a1b2"))
    yield replaced | {SegmentField.IS_DEAD: {"BOOL": True}}
    restored = Restored(Seq(1), Seq(1000), _SEGMENT.first_ts, _SEGMENT.last_ts, S + 86_400, 400)
    yield restored_ranges.RANGE.encode(restored, chat=OLD)
    for list_ in ("a#restored", "a#late"):
        yield row_key(list_, f"{list_}#{OLD}") | {SegmentField.AT: _make_number(MS)}


def _make_operations() -> Iterable[Item]:
    yield make_schema_item()
    wrapped = WrappedKey(b"a data key, wrapped", "file:2c26b46b68ffc68f")
    yield encode_key(StoredKey(1, None, MS, MS + 60_000))
    yield encode_key(StoredKey(2, wrapped, MS))
    yield row_key(PARTITION, "reencryption") | {EncryptionField.PROGRESS: {"S": '{"version":2}'}}
    yield TENANT_STATE.encode(TenantState("acme", "blocked", MS, "j3"))
    expiry = {SchemaField.EXPIRES_AT: _make_number(S + 86_400)}
    yield PROCESS.encode(SchemaProcess("api-1", 1, MS)) | expiry
    lock = {
        SchemaField.HOLDER: {"S": "migrate-1"},
        SchemaField.HELD_UNTIL: _make_number(MS + 30_000),
    }
    yield build_key(migrations.LOCK) | lock | {SchemaField.TURN: _make_number(3)}
    started = migrations.MigrationRun(migrations.RUNNING, MS, 0, 4)
    yield migrations.PROGRESS.encode(started, number=2)
    progress = msgspec.json.encode(migrations.ScanSegment(0, read=1200, filled=300)).decode()
    segment = {SchemaField.PROGRESS: {"S": progress}, SchemaField.TURN: _make_number(3)}
    yield build_key(migrations.segment_key(2, 0)) | segment
    layout = Layout((ShardingPeriod(TS, 4),)).encode()
    yield LAYOUTS_KEY | {
        ShardField.CHATS: {"M": {BUSY: {"S": layout}}},
        ShardField.FLOORS: {"M": {BUSY: {"S": ShardFloor(TS + 3_600_000_000, 2).encode()}}},
        ShardField.CHANGED: _make_number(7),
    }
    horizon = {ShardField.UPTO: _make_number(TS), ShardField.REV: _make_number(12)}
    yield HORIZON_KEY | horizon | {ShardField.CHANGED: _make_number(7)}
    shard = {
        StreamField.POSITION: {"S": "49590338271490256608559692538361571095921575989136588898"}
    }
    shard |= {StreamField.HOLDER: {"S": "archive-1"}, StreamField.TURN: _make_number(2)}
    shard |= {
        StreamField.HELD_UNTIL: _make_number(MS + 30_000),
        StreamField.READ_TO: _make_number(MS),
    }
    yield row_key("stream", "shard#2026-01-01T00:00:00.000/shardId-000001") | shard
    reader = {StreamField.SEEN: _make_number(MS), StreamField.EXPIRES_AT: _make_number(S + 86_400)}
    yield row_key("stream", "reader#archive-1") | reader
