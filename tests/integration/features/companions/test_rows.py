"""Companions in table `directory`: immutable versions, and a head with the current version."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, Conflict, NotFound, TooLarge
from chatserver.features.companions.model import VersionChanges
from chatserver.features.companions.service.companions import Companions
from chatserver.features.companions.warm.companions import CompanionRows
from tests.integration.warm.support import Tables

ADA = CompanionId(UserId("ai-ada"))
FIRST = VersionChanges(name="Ada", prompt="Be kind.", provider="scripted", model="echo")


@pytest.fixture
def companions(tables: Tables) -> Companions:
    """The companion service on the tables of this test."""
    return Companions(CompanionRows(tables.client), SystemClock())


async def rows_of(tables: Tables) -> dict[str, dict[str, dict[str, str]]]:
    """Return the rows of companions by partition and sort key."""
    rows = await tables.scan("directory")
    found = {f"{row['PK']['S']}/{row['SK']['S']}": row for row in rows}
    return {name: row for name, row in found.items() if name.startswith("companion")}


async def test_create_writes_a_head_and_version_1(tables: Tables, companions: Companions) -> None:
    """There are two rows with the documented keys."""
    made = await companions.create("ai-ada", FIRST)

    rows = await rows_of(tables)
    assert set(rows) == {"companions/companion#ai-ada", "companion#ai-ada/version#ai-ada#00001"}
    assert rows["companions/companion#ai-ada"]["version"] == {"N": "1"}
    assert rows["companion#ai-ada/version#ai-ada#00001"]["prompt"] == {"S": "Be kind."}
    assert await companions.get(ADA) == await companions.get(ADA, 1) == made


async def test_update_creates_the_next_version_and_keeps_earlier_ones(
    companions: Companions,
) -> None:
    first = await companions.create("ai-ada", FIRST)

    second = await companions.update(ADA, VersionChanges(prompt="Be brief."))

    assert (second.version, second.prompt, second.name) == (2, "Be brief.", "Ada")
    assert await companions.get(ADA, 1) == first
    assert await companions.get(ADA) == second


async def test_concurrent_updates_create_one_version_each(companions: Companions) -> None:
    """No update is lost or overwritten."""
    await companions.create("ai-ada", FIRST)

    made = await asyncio.gather(
        *(companions.update(ADA, VersionChanges(prompt=f"prompt {n}")) for n in range(5))
    )

    assert sorted(each.version for each in made) == [2, 3, 4, 5, 6]
    for each in made:
        assert (await companions.get(ADA, each.version)).prompt == each.prompt


async def test_update_of_an_old_version_is_conflict(
    companions: Companions,
) -> None:
    """A client with an old version cannot overwrite later changes."""
    await companions.create("ai-ada", FIRST)
    await companions.update(ADA, VersionChanges(name="Ada L."), 1)

    with pytest.raises(Conflict, match="newest is 2"):
        await companions.update(ADA, VersionChanges(name="Ada K."), 1)


@pytest.mark.parametrize("operation", ["create", "update"])
async def test_change_with_lost_response_is_applied_once(
    tables: Tables, companions: Companions, no_backoff: None, operation: str
) -> None:
    """The retry finds the rows of the first attempt."""
    if operation == "update":
        await companions.create("ai-ada", FIRST)
    tables.faults.drop_responses("TransactWriteItems", 1)

    if operation == "create":
        await companions.create("ai-ada", FIRST)
    else:
        await companions.update(ADA, VersionChanges(prompt="Be brief."))

    assert (await companions.get(ADA)).version == (1 if operation == "create" else 2)


async def test_deleted_companion_is_not_listed_and_keeps_its_versions(
    companions: Companions,
) -> None:
    """Sessions still need its versions; the id cannot be used again."""
    await companions.create("ai-ada", FIRST)
    await companions.create("ai-ben", FIRST)

    await companions.delete(ADA)
    await companions.delete(ADA)

    found, following = await companions.list_page(None, 10)
    assert ([each.id for each in found], following) == (["ai-ben"], None)
    assert (await companions.get(ADA, 1)).is_deleted
    with pytest.raises(NotFound):
        await companions.get(ADA)
    with pytest.raises(NotFound):
        await companions.update(ADA, VersionChanges(name="Ada"))
    with pytest.raises(Conflict):
        await companions.create("ai-ada", FIRST)


async def test_list_is_paged_by_id(companions: Companions) -> None:
    """Deleted companions are skipped."""
    for name in ("ai-a", "ai-b", "ai-c", "ai-d"):
        await companions.create(name, FIRST)
    await companions.delete(CompanionId(UserId("ai-b")))

    found, after = [], None
    while True:
        page, after = await companions.list_page(after, 1)
        found += [each.id for each in page]
        if after is None:
            break

    assert found == ["ai-a", "ai-c", "ai-d"]


@pytest.mark.parametrize(
    ("id_", "fields", "error", "names"),
    [
        ("ada", FIRST, BadRequest, "id: must be ai-"),
        ("ai-Ada", FIRST, BadRequest, "id: must be ai-"),
        ("ai-ada", VersionChanges(name="Ada"), BadRequest, "name, provider, model"),
        ("ai-ada", VersionChanges("Ada", "x" * 16_001, "scripted", "echo"), TooLarge, "prompt"),
        ("ai-ada", VersionChanges("Ada", "", "scripted", "e\n"), BadRequest, "model"),
        (
            "ai-ada",
            VersionChanges("Ada", "", "scripted", "e", 255),
            BadRequest,
            "context_tokens_max",
        ),
        (
            "ai-ada",
            VersionChanges("Ada", "", "scripted", "e", 300, 300),
            BadRequest,
            "answer_tokens_max",
        ),
    ],
)
async def test_invalid_companion_is_refused_by_field(
    tables: Tables,
    companions: Companions,
    id_: str,
    fields: VersionChanges,
    error: type[Exception],
    names: str,
) -> None:
    """Nothing is written."""
    with pytest.raises(error, match=names):
        await companions.create(id_, fields)

    assert not await rows_of(tables)
