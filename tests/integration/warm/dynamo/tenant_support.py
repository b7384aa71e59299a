"""Random operations of all repositories, run on shared and on separate tables."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from chatserver.config import Warm
from chatserver.domain.access.logins import Login
from chatserver.domain.archive_segments import NOTHING_ARCHIVED, ArchiveSegment
from chatserver.domain.ids import ChatId, Seq, Ts, UserId
from chatserver.errors import ChatError
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.attachments.model import File, UploadBounds
from chatserver.features.attachments.warm import Attachments
from chatserver.features.chat_preferences.warm import PreferenceRows
from chatserver.features.privacy.warm.user_data import PersonalRows
from chatserver.features.push.model import Subscription
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.protocol.frames import Attachment, Message
from chatserver.warm.api_keys import KeyRow, StoredApiKeys
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.member_states import MarkUpdate, MemberStates
from chatserver.warm.chats.memberships import Memberships
from chatserver.warm.chats.moderation import Moderation
from chatserver.warm.chats.muted_chats import MutedChats
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import Messages, PersistItem
from tests.integration.warm.support import START_TS, STEP_US, FixedClock

USERS = ("ann", "ben", "cleo", "acme", "zeta")
CHATS = ("d-1", "d-2", "g-1", "g-2", "acme", "u")
NOW_S = START_TS / 1e6
FILE = Attachment("F1", "sea.png", "image/png", 1024)

Step = Callable[["World", random.Random], Awaitable[Any]]


@dataclasses.dataclass
class World:
    """All repositories of one deployment."""

    client: DynamoClient
    settings: Warm

    def __post_init__(self) -> None:
        at, clock = (self.client, self.settings), FixedClock(NOW_S)
        self.directory = Directory(self.client)
        self.member_state = MemberStates(self.client, self.directory)
        self.messages = Messages(self.client, clock)
        self.queries = MessageIndexes(self.client, clock)
        self.changes = MessageChanges(self.client)
        self.archivable = ArchivableEntries(self.client, clock)
        self.manifests = Manifests(self.client)
        self.memberships = Memberships(self.client, clock)
        self.accounts = AccountRows(self.client)
        self.keys = StoredApiKeys(self.client)
        self.uploads = Attachments(self.client)
        self.moderation = Moderation(self.client)
        self.personal = PersonalRows(at[0])
        self.pushes = PushSubscriptions(self.client, 3)
        self.muted = MutedChats(self.client)
        self.preferences = PreferenceRows(self.client)
        self.pages: list[Any] = []

    async def run_step(self, step: Step, seed: int) -> Any:
        """Run a step; return its result or the name of its error."""
        try:
            return await step(self, random.Random(seed))
        except ChatError as exc:
            return type(exc).__name__


def _message(rng: random.Random) -> PersistItem:
    seq, chat, sender = rng.randint(1, 12), rng.choice(CHATS), rng.choice(USERS)
    with_file = rng.random() < 0.3
    message = Message(
        seq, START_TS + seq * STEP_US, chat, f"{chat}-{seq}", sender, f"r{seq}", "text",
        f"body {seq}", attachments=[FILE] if with_file else [],
        expires_at=int(NOW_S) + 10_000 if rng.random() < 0.2 else None,
    )  # fmt: skip
    return PersistItem(message, rng.choice(USERS) if chat.startswith("d-") else None)


async def put_messages(world: World, rng: random.Random) -> Any:
    await world.messages.put_batch([_message(rng) for _ in range(rng.randint(1, 12))], 20)


async def read_run(world: World, rng: random.Random) -> Any:
    chat, at = rng.choice(CHATS), rng.randint(0, 12)
    return [
        await world.messages.find_head(chat),
        await world.messages.list_before(chat, at or None, 5),
        await world.messages.list_after(chat, at, 5, START_TS + at * STEP_US),
        await world.archivable.list_consecutive(chat, at, START_TS, START_TS + 99 * STEP_US, 5),
        await world.archivable.find_oldest(chat),
    ]


async def change_message(world: World, rng: random.Random) -> Any:
    chat, seq = rng.choice(CHATS), rng.randint(1, 12)
    ts, kind = START_TS + seq * STEP_US, rng.choice(("edit", "delete"))
    entry = Message(seq + 100, ts + 1, chat, "M", "ann", "r", kind, "new", target=seq)
    await world.changes.apply(chat, ts, [entry])


async def page(world: World, rng: random.Random) -> Any:
    query = rng.choice(
        (world.queries.list_chat, world.queries.list_active, world.queries.list_with_files,
         world.queries.list_sent, world.queries.list_received)
    )  # fmt: skip
    of = rng.choice(CHATS + USERS)
    found, start = [], None
    for _ in range(5):
        result = await query(of, limit=3, start=start)
        found.append(msgspec.to_builtins(result.items))
        found.append(start := result.next)
        if start is None:
            break
    return found


async def get_many(world: World, rng: random.Random) -> Any:
    positions = {(rng.choice(CHATS), START_TS + rng.randint(1, 12) * STEP_US) for _ in range(9)}
    return await world.queries.get_many(positions)


async def make_chat(world: World, rng: random.Random) -> Any:
    chat, members = rng.choice(CHATS), rng.sample(USERS, 3)
    if chat.startswith("d-"):
        return await world.directory.create_direct(chat, members[0], members[1], NOW_S)
    return await world.directory.create_group(chat, members[0], members[1:], None, NOW_S)


async def read_chat(world: World, rng: random.Random) -> Any:
    chat, user = rng.choice(CHATS), rng.choice(USERS)
    found = await world.directory.list_memberships(user, limit=2)
    more = found.next and await world.directory.list_memberships(user, limit=9, start=found.next)
    return [
        found,
        more,
        await world.memberships.find_known(USERS),
        await world.directory.get_chat_with_members(chat),
        await world.memberships.read(chat, USERS),
        await world.memberships.list_after(chat, None, 2),
    ]


async def change_members(world: World, rng: random.Random) -> Any:
    chat = await world.memberships.get_chat(rng.choice(CHATS))
    joining, leaving = rng.choice(USERS), rng.choice(USERS)
    if joining == leaving:
        return None
    added: Any = {joining: ("member", 1)}
    banned = {leaving: "ann"} if rng.random() < 0.5 else None
    made = await world.memberships.commit(chat, "x", added, {}, {leaving}, {}, banned=banned)
    return [made, await world.moderation.list_bans(chat.chat, None, 5)]


async def mark(world: World, rng: random.Random) -> Any:
    chat, user = rng.choice(CHATS), rng.choice(USERS)
    await world.member_state.put_marks(
        [MarkUpdate(chat, user, rng.randint(1, 9), rng.randint(1, 9))]
    )
    await world.member_state.add_hidden(chat, user, [rng.randint(1, 9)])
    before = await world.preferences.get(UserId(user), ChatId(chat))
    after = msgspec.structs.replace(
        before, rev=before.rev + 1, muted_until=rng.choice((None, int(NOW_S * 2)))
    )
    await world.preferences.put(UserId(user), before, after, None)
    users = [UserId(each) for each in USERS]
    return sorted(await world.muted.find_unmuted(ChatId(chat), users, NOW_S))


async def register(world: World, rng: random.Random) -> Any:
    user, number = rng.choice(USERS), rng.randint(1, 3)
    login = Login(user, f"L{number}", None, 1, 1, f"seed{number}", int(NOW_S) + 9_999)
    await world.directory.put_user_if_absent(rng.choice(USERS), "n", NOW_S)
    await world.accounts.create(user, user.title(), 1, "hash", login)


async def read_account(world: World, rng: random.Random) -> Any:
    user = rng.choice(USERS)
    await world.accounts.put_profile(user, {"about": f"{rng.random():.3}"})
    return [
        await world.accounts.list_users(USERS),
        await world.accounts.list_logins(user),
        await world.accounts.find_credential(user),
        await world.personal.list_names(user, ""),
    ]


async def leave(world: World, rng: random.Random) -> Any:
    return await world.personal.remove_rows(rng.choice(USERS))


async def make_key(world: World, rng: random.Random) -> Any:
    row = KeyRow(f"K{rng.randint(1, 4)}", "n", 1, frozenset({"send"}), f"{rng.random():.3}")
    try:
        await world.keys.create(row)
    finally:
        found = await world.keys.list_all()
    return found


async def upload(world: World, rng: random.Random) -> Any:
    owner, chat = UserId(rng.choice(USERS)), ChatId(rng.choice(CHATS))
    due = int(NOW_S) + rng.randint(1, 99)
    file = File(f"F{rng.randint(1, 5)}", owner, chat, "n", "image/png", 10, "0" * 64, 1, due)
    try:
        return await world.uploads.create_file(file, UploadBounds(99, 2, 99))
    finally:
        await world.uploads.update_file(file.id, lambda it: dataclasses.replace(it, width=3))


async def read_due(world: World, rng: random.Random) -> Any:
    due = [await world.uploads.list_due(shard, int(NOW_S) * 2, 9) for shard in range(4)]
    return [due, await world.uploads.find_file(f"F{rng.randint(1, 5)}")]


async def moderate(world: World, rng: random.Random) -> Any:
    one, other, chat = rng.choice(USERS), rng.choice(USERS), rng.choice(CHATS)
    await world.moderation.put_block(one, other, NOW_S)
    await world.moderation.put_report(chat, rng.randint(1, 3), one, "why", NOW_S)
    found = [
        await world.moderation.list_blocks(one, None, 9),
        await world.moderation.list_blockers(other),
        await world.moderation.list_open_reports(None, 9),
        await world.moderation.list_reports(chat, None, 9),
        await world.moderation.list_between(one, other),
    ]
    report = await world.moderation.get_report(chat, 1, one)
    await world.moderation.resolve(report, other, NOW_S)
    return found


async def subscribe(world: World, rng: random.Random) -> Any:
    user = UserId(rng.choice(USERS))
    one = Subscription(f"S{rng.randint(1, 6)}", user, "fcm", "t", created_ms=rng.randint(1, 9))
    await world.pushes.put(one, NOW_S)
    return [await world.pushes.list_for_user(UserId(each), NOW_S) for each in USERS]


async def archive(world: World, rng: random.Random) -> Any:
    chat = ChatId(rng.choice(CHATS))
    top = await world.manifests.get_top(chat)
    first = Seq(top.seq + 1)
    segment = ArchiveSegment(
        chat, first, Seq(first + 2), Ts(first), Ts(first + 2), 9, 9, "0" * 64, "t"
    )
    await world.manifests.add_orphan(segment)
    if rng.random() < 0.7:
        await world.manifests.commit(segment, None, top)
    await world.manifests.record_trails(USERS[:2], chat, first)
    await world.manifests.record_late(chat, rng.randint(1, 9))
    return [
        await world.manifests.list_covering(chat, 1, 99),
        await world.manifests.list_orphans(chat),
        await world.manifests.late.list_all(),
        await world.manifests.find_at(chat, 2),
        top == NOTHING_ARCHIVED,
    ]


async def scan_due(world: World, rng: random.Random) -> Any:
    """Scan the due chats. The Scan reads items of all tenants but returns only the tenant's own."""
    await world.manifests.record_due(rng.choice(CHATS), START_TS)
    found: set[str] = set()
    for part in range(2):
        start = None
        while True:
            chats, start = await world.manifests.list_due_chats(part, 2, START_TS + 1, start)
            found.update(chats)
            if start is None:
                break
    return sorted(found)


async def remove_old(world: World, rng: random.Random) -> Any:
    chat = rng.choice(CHATS)
    entries = await world.archivable.list_between(chat, START_TS, START_TS + 3 * STEP_US)
    return await world.archivable.remove(entries, 4)


STEPS: tuple[Step, ...] = (
    put_messages, put_messages, read_run, change_message, page, page, get_many, make_chat,
    make_chat, read_chat, change_members, mark, register, read_account, leave, make_key, upload,
    read_due, moderate, subscribe, archive, scan_due, remove_old,
)  # fmt: skip
