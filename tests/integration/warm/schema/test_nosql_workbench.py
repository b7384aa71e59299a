"""The sample rows of the NoSQL Workbench model are readable by the product's repositories.

`tests/unit/warm/schema/test_nosql_workbench.py` tests the rows that have a decoder. This test
covers the other rows and the indexes: it writes them to real tables and reads them with the
product's queries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import ChatId, UserId
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.accounts.warm.search_entries import SearchEntries
from chatserver.features.attachments.warm import SHARDS, Attachments
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.features.companions.warm.sessions import SessionRows
from chatserver.features.companions.warm.summaries import Summaries
from chatserver.features.pins.warm import PinRows
from chatserver.features.privacy.warm.jobs import EXPORT_PREFIX, JobRows
from chatserver.features.privacy.warm.user_data import FILE_PREFIX, REPORTED_PREFIX, PersonalRows
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.features.social.model import PostId, PostRef
from chatserver.features.social.warm.favorites import SocialFavorites
from chatserver.features.social.warm.likes import SocialLikes
from chatserver.features.social.warm.social_items import LIKED_PREFIX
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.archive.restored_ranges import RestoredRanges
from chatserver.warm.archive.user_archive_positions import UserArchivePositions
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.legal_holds import Holds
from chatserver.warm.chats.moderation import Moderation
from chatserver.warm.chats.stored_invitations import StoredInvitations
from chatserver.warm.dynamo.batches import WRITES_MAX, put_items
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.active_version import SchemaVersions
from chatserver.warm.schema.migrations.progress_and_lock import MigrationProgress
from chatserver.warm.streams.checkpoints import StreamCheckpoints
from chatserver.warm.tenant_states import TenantStates
from deploy.documents.nosql_workbench_facets import FACETS
from tests.integration.warm.support import FixedClock, Tables
from tests.unit.warm.schema.test_nosql_workbench import DECODERS, FILE, Model

NOW = 1_795_000_000.0  # the time of the model
NOW_TS = int(NOW * 1e6)
POST = PostId("01KAJ4Q7R8M2E5S9T0B3C6D8FH")
Read = Callable[[], Awaitable[object]]


async def test_sample_rows_of_the_model_are_found_by_the_repositories(tables: Tables) -> None:
    """Every facet without a decoder is read. A row with a wrong key or attribute is not found."""
    client, settings = tables.client, tables.settings
    model = msgspec.json.decode(FILE.read_bytes(), type=Model)
    for table in model.DataModel:
        items = [item for facet in table.TableFacets for item in facet.TableData]
        for at in range(0, len(items), WRITES_MAX):
            name = settings.table_prefix + table.TableName
            await put_items(client, name, items[at : at + WRITES_MAX])  # type: ignore[arg-type]  # JSON items

    reads = make_reads(tables)

    of_rows = {each.name for each in FACETS if each.name not in DECODERS}
    assert reads.keys() == of_rows
    missing = [name for name, read in reads.items() if not await read()]
    assert missing == []


def make_reads(tables: Tables) -> dict[str, Read]:
    """Return a read of each facet, whose result is true if it finds the rows."""
    client = tables.client
    clock = FixedClock(NOW)
    shards = ShardedChats(client, clock)
    messages = MessageIndexes(client, clock, shards)
    jobs, personal = JobRows(client), PersonalRows(client)
    manifests, migrations = Manifests(client), MigrationProgress(client)
    pushes = PushSubscriptions(client, 10)
    files = Attachments(client)

    def names(user: str, prefix: str) -> Read:
        return lambda: personal.list_names(user, prefix)

    async def due() -> object:
        return [each for n in range(SHARDS) for each in await files.list_due(n, 2**32, 10)]

    async def sharded() -> object:
        return (await shards.get_for_reading(NOW_TS)).of("g-busy")

    async def streams() -> object:
        return (await StreamCheckpoints(client, 60).get_state(NOW)).progress

    async def readers() -> object:
        return (await StreamCheckpoints(client, 60).get_state(NOW)).readers

    return {
        "Index sender: messages that a user sent, by time": lambda: has_items(
            messages.list_sent("alice", limit=50), 11
        ),
        "Index receiver: direct messages that a user received, by time": lambda: has_items(
            messages.list_received("bob", limit=50), 5
        ),
        "Index status: active messages of a chat, by time": lambda: has_items(
            messages.list_active("g-team", limit=50), 2
        ),
        "Index files: messages of a chat with files, by time": lambda: has_items(
            messages.list_with_files("d-alice-bob", limit=50), 1
        ),
        "Index GSI1_chat: the session of a chat": lambda: SessionRows(client).find_by_chat(
            ChatId("01KAJ5W3N0TBJ8QW6X1V7ZC2YD")
        ),
        "Index by_member: the chats of a user (m#<user>), and the reverse": lambda: has_items(
            Directory(client).list_memberships("alice", limit=50), 3
        ),
        "Likecount": lambda: SocialLikes(client).get_counts([POST]),
        "Reference of a favorite": lambda: SocialFavorites(client).find_saved(
            "bob", [PostRef(POST, "alice")]
        ),
        "Entry of the user search": lambda: SearchEntries(client).find(["alice", "sm"]),
        "Password": lambda: AccountRows(client).find_credential("alice"),
        "Trust": lambda: StoredInvitations(client).find_trusting("alice", ["bob"]),
        "Companion": lambda: CompanionRows(client).get_newest(CompanionId(UserId("ai-ada"))),
        "Block": lambda: Moderation(client).list_blocks("bob", None, 10),
        "Legal hold": lambda: Holds(client).find("d-alice-bob"),
        "Chats under a hold": lambda: has_items(Holds(client).list_chats(10), 1),
        "Pins of a chat": lambda: PinRows(client, shards).get_count("g-team"),
        "Report of a user": names("bob", REPORTED_PREFIX),
        "Open report": lambda: first(Moderation(client).list_open_reports(None, 10)),
        "Owner of a push subscription": lambda: pushes._find_owner("s1"),
        "File due for removal": due,
        "File of a user": names("bob", FILE_PREFIX),
        "Waiting job": lambda: jobs.list_waiting("erasure"),
        "Kept export": lambda: jobs.list_expiring_before(2**40),
        "Exports of a user": lambda: jobs.find_newest_export("alice"),
        "Export of a user": names("alice", EXPORT_PREFIX),
        "Memory of a companion": lambda: Summaries(client).find(
            ChatId("01KAJ5W3N0TBJ8QW6X1V7ZC2YD")
        ),
        "Schema": lambda: SchemaVersions(client).get_state(),
        "Tenant": lambda: TenantStates(client).find("acme"),
        "Process": lambda: SchemaVersions(client).list_processes(NOW),
        "Sharded chats": sharded,
        "Horizon of write sharding": sharded,
        "Lock of migrations": lambda: migrations.find_holder(NOW),
        "Migration": lambda: migrations.find_progress(2),
        "Segment of a migration": lambda: migrations.get_segment(2, 0),
        "Shard of the Stream": streams,
        "Reader of the Stream": readers,
        "Uploads of a user": names("bob", "uploads#"),
        "Like of a user": names("bob", LIKED_PREFIX),
        "Archive of a chat": lambda: manifests.get_top("g-archived"),
        "Chat with restored ranges": RestoredRanges(client).due.list_all,
        "Chat with late changes": manifests.late.list_all,
        "Archive position of a user": lambda: UserArchivePositions(client).find("sent", "alice"),
        "Archived segments of a user": names("alice", "archived#"),
    }


async def has_items(page: Awaitable[object], count: int) -> bool:
    """Return whether a page has this many items."""
    return len((await page).items) == count  # type: ignore[attr-defined]  # pages of several types


async def first(pair: Awaitable[tuple[object, object]]) -> object:
    return (await pair)[0]
