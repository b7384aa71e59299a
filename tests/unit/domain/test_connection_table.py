"""Connection limits: which connection is closed if there are too many."""

from __future__ import annotations

import random

import pytest

from chatserver.domain.connection_table import ConnectionStage, ConnectionTable


def fill(
    table: ConnectionTable[str], address: str, count: int, stage: ConnectionStage
) -> list[str]:
    """Add connections of an address; return the connections closed for them."""
    closed = []
    for number in range(count):
        displaced = table.put(f"{address}-{number}", address, stage)
        if displaced is not None:
            table.remove(displaced)
            closed.append(displaced)
    return closed


def test_table_above_a_share_closes_the_oldest_of_the_address() -> None:
    """An address may exceed its share by an eighth; other addresses lose no connection."""
    table: ConnectionTable[str] = ConnectionTable(100, 8)
    fill(table, "b", 4, ConnectionStage.HEAD)

    closed = fill(table, "a", 12, ConnectionStage.HEAD)

    assert closed == ["a-0", "a-1", "a-2"]
    assert table.count(ConnectionStage.HEAD) == 4 + 9


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (
            (
                ConnectionStage.WRITE,
                ConnectionStage.BODY,
                ConnectionStage.HEAD,
                ConnectionStage.IDLE,
            ),
            ConnectionStage.IDLE,
        ),
        (
            (
                ConnectionStage.BUSY,
                ConnectionStage.WRITE,
                ConnectionStage.BODY,
                ConnectionStage.HEAD,
            ),
            ConnectionStage.HEAD,
        ),
        ((ConnectionStage.BUSY, ConnectionStage.WRITE, ConnectionStage.BODY), ConnectionStage.BODY),
        ((ConnectionStage.BUSY, ConnectionStage.WRITE), ConnectionStage.WRITE),
        ((ConnectionStage.BUSY,), None),
    ],
)
def test_table_closes_idle_and_early_connections_first(
    stages: tuple[ConnectionStage, ...], expected: ConnectionStage | None
) -> None:
    """Idle connections come first, then earlier stages; a running request is never closed."""
    table: ConnectionTable[str] = ConnectionTable(len(stages) - 1, 100)
    for stage in stages:
        assert table.put(stage.name, stage.name, stage) is None

    displaced = table.put("new", "new", ConnectionStage.HEAD)

    assert displaced == (None if expected is None else expected.name)


def test_table_orders_by_the_time_in_the_stage() -> None:
    """A connection that has just moved is the newest of its new stage."""
    table: ConnectionTable[str] = ConnectionTable(2, 100)
    for name in ("first", "second", "third"):
        table.put(name, name, ConnectionStage.IDLE)
    table.move("first", ConnectionStage.BUSY)
    table.move("first", ConnectionStage.IDLE)

    assert table.put("new", "new", ConnectionStage.HEAD) == "second"


def test_table_reports_used_up_shares_and_total() -> None:
    """Waiting connections and connections through a proxy do not count toward a share."""
    table: ConnectionTable[str] = ConnectionTable(4, 2)
    fill(table, "a", 2, ConnectionStage.BUSY)
    table.put("waiting", "a", ConnectionStage.HEAD)
    assert not table.is_share_used_up("a")

    table.move("waiting", ConnectionStage.BUSY)
    for name in ("p-1", "p-2"):
        table.put(name, None, ConnectionStage.BUSY)

    assert table.is_share_used_up("a")
    assert not table.is_share_used_up("b")
    assert table.is_full


def test_table_is_consistent_after_random_operations() -> None:
    """A plain dict has the same counts, and no entry remains after all are removed."""
    rng, table = random.Random(7), ConnectionTable[int](50, 5)
    known: dict[int, ConnectionStage] = {}
    for number in range(5000):
        connection = rng.choice([*known, number]) if known else number
        stage = rng.choice(list(ConnectionStage))
        match rng.randrange(3):
            case 0:
                displaced = table.put(connection, rng.choice([None, "a", "b", "c"]), stage)
                known[connection] = stage
                assert displaced is None or known[displaced] is not ConnectionStage.BUSY
            case 1 if connection in known:
                table.move(connection, stage)
                known[connection] = stage
            case _:
                table.remove(connection)
                known.pop(connection, None)
        assert len(table) == len(known)
        assert all(table.count(s) == list(known.values()).count(s) for s in ConnectionStage)
    for connection in list(known):
        table.remove(connection)

    assert len(table) == 0
    assert not table._by_address
