"""Companions in table `directory`: versions that never change, and a head that names one."""

from __future__ import annotations

import asyncio

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.companion_ids import CompanionId
from chatserver.domain.ids import UserId
from chatserver.errors import BadRequest, Conflict, NotFound, TooLarge
from chatserver.features.companions.model import Changes
from chatserver.features.companions.service.companions import Companions
from chatserver.features.companions.warm.companions import CompanionRows
from tests.integration.warm.support import Tables

pytest_plugins = ["tests.integration.warm.fixtures"]

ADA = CompanionId(UserId("ai-ada"))
FIRST = Changes(name="Ada", prompt="Be kind.", provider="scripted", model="echo")


@pytest.fixture
def book_of_ada(tables: Tables) -> Companions:
    """The use cases, on tables of the test's own."""
    return Companions(CompanionRows(tables.client, tables.settings), SystemClock())


async def rows_of(tables: Tables) -> dict[str, dict[str, dict[str, str]]]:
    """Return the rows of companions by partition and sort key."""
    rows = await tables.scan("directory")
    found = {f"{row['PK']['S']}/{row['SK']['S']}": row for row in rows}
    return {name: row for name, row in found.items() if name.startswith("companion")}


async def test_create_writes_a_head_and_version_1(tables: Tables, book_of_ada: Companions) -> None:
    """Two rows, in one transaction, with the keys that the docs name."""
    made = await book_of_ada.create("ai-ada", FIRST)

    rows = await rows_of(tables)
    assert set(rows) == {"companions/companion#ai-ada", "companion#ai-ada/version#ai-ada#00001"}
    assert rows["companions/companion#ai-ada"]["version"] == {"N": "1"}
    assert rows["companion#ai-ada/version#ai-ada#00001"]["prompt"] == {"S": "Be kind."}
    assert await book_of_ada.get(ADA) == await book_of_ada.get(ADA, 1) == made


async def test_update_makes_the_next_version_and_leaves_those_before(
    book_of_ada: Companions,
) -> None:
    """A version is immutable."""
    first = await book_of_ada.create("ai-ada", FIRST)

    second = await book_of_ada.update(ADA, Changes(prompt="Be brief."))

    assert (second.version, second.prompt, second.name) == (2, "Be brief.", "Ada")
    assert await book_of_ada.get(ADA, 1) == first
    assert await book_of_ada.get(ADA) == second


async def test_updates_at_once_make_a_version_each(book_of_ada: Companions) -> None:
    """None is lost, and none is written over."""
    await book_of_ada.create("ai-ada", FIRST)

    made = await asyncio.gather(
        *(book_of_ada.update(ADA, Changes(prompt=f"prompt {n}")) for n in range(5))
    )

    assert sorted(each.version for each in made) == [2, 3, 4, 5, 6]
    for each in made:
        assert (await book_of_ada.get(ADA, each.version)).prompt == each.prompt


async def test_update_of_another_version_than_the_newest_is_conflict(
    book_of_ada: Companions,
) -> None:
    """An editor with an old version does not undo later changes."""
    await book_of_ada.create("ai-ada", FIRST)
    await book_of_ada.update(ADA, Changes(name="Ada L."), 1)

    with pytest.raises(Conflict, match="newest is 2"):
        await book_of_ada.update(ADA, Changes(name="Ada K."), 1)


@pytest.mark.parametrize("way", ["create", "update"])
async def test_change_whose_answer_is_lost_is_made_once(
    tables: Tables, book_of_ada: Companions, no_backoff: None, way: str
) -> None:
    """The second try finds what the first one wrote."""
    if way == "update":
        await book_of_ada.create("ai-ada", FIRST)
    tables.faults.lose_answers("TransactWriteItems", 1)

    if way == "create":
        await book_of_ada.create("ai-ada", FIRST)
    else:
        await book_of_ada.update(ADA, Changes(prompt="Be brief."))

    assert (await book_of_ada.get(ADA)).version == (1 if way == "create" else 2)


async def test_deleted_companion_is_in_no_list_and_its_versions_stay(
    book_of_ada: Companions,
) -> None:
    """Users with a session still get its version; the name is not reused."""
    await book_of_ada.create("ai-ada", FIRST)
    await book_of_ada.create("ai-ben", FIRST)

    await book_of_ada.delete(ADA)
    await book_of_ada.delete(ADA)

    found, following = await book_of_ada.list_page(None, 10)
    assert ([each.id for each in found], following) == (["ai-ben"], None)
    assert (await book_of_ada.get(ADA, 1)).is_deleted
    with pytest.raises(NotFound):
        await book_of_ada.get(ADA)
    with pytest.raises(NotFound):
        await book_of_ada.update(ADA, Changes(name="Ada"))
    with pytest.raises(Conflict):
        await book_of_ada.create("ai-ada", FIRST)


async def test_list_goes_by_id_page_after_page(book_of_ada: Companions) -> None:
    """Also where deleted ones lie between."""
    for name in ("ai-a", "ai-b", "ai-c", "ai-d"):
        await book_of_ada.create(name, FIRST)
    await book_of_ada.delete(CompanionId(UserId("ai-b")))

    found, after = [], None
    while True:
        page, after = await book_of_ada.list_page(after, 1)
        found += [each.id for each in page]
        if after is None:
            break

    assert found == ["ai-a", "ai-c", "ai-d"]


@pytest.mark.parametrize(
    ("id_", "wanted", "error", "names"),
    [
        ("ada", FIRST, BadRequest, "id: must be ai-"),
        ("ai-Ada", FIRST, BadRequest, "id: must be ai-"),
        ("ai-ada", Changes(name="Ada"), BadRequest, "name, provider, model"),
        ("ai-ada", Changes("Ada", "x" * 16_001, "scripted", "echo"), TooLarge, "prompt"),
        ("ai-ada", Changes("Ada", "", "scripted", "e\n"), BadRequest, "model"),
        ("ai-ada", Changes("Ada", "", "scripted", "e", 255), BadRequest, "context_tokens_max"),
        ("ai-ada", Changes("Ada", "", "scripted", "e", 300, 300), BadRequest, "answer_tokens_max"),
    ],
)
async def test_companion_out_of_its_bounds_is_refused(
    tables: Tables,
    book_of_ada: Companions,
    id_: str,
    wanted: Changes,
    error: type[Exception],
    names: str,
) -> None:
    """One clear error that names the field, and nothing is written."""
    with pytest.raises(error, match=names):
        await book_of_ada.create(id_, wanted)

    assert not await rows_of(tables)
