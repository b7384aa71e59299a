"""add_dynamodb_usage.lua: each part is added once, and only the heaviest chats are kept."""

from __future__ import annotations

from tests.unit.hot.scripts.script_runner import ScriptRunner

DAY = "2027-01-15"
TTL_S = 3600


def add(
    scripts: ScriptRunner, number: int, *usage: tuple[str, str, str], process: str = "p1"
) -> int:
    """Add a part of a process's usage; at most four chats are kept."""
    added: int = scripts.run(
        "add_dynamodb_usage",
        {
            "units": scripts.keys.cost_units(DAY),
            "reads": scripts.keys.cost_reads(DAY),
            "writes": scripts.keys.cost_writes(DAY),
            "flushes": scripts.keys.cost_flushes(DAY),
        },
        {"process": process, "number": number, "size": 2, "ttl_s": TTL_S},
        [{"list": list_, "name": name, "amount": amount} for list_, name, amount in usage],
    )
    return added


def test_add_dynamodb_usage_keeps_the_heaviest_chats(scripts: ScriptRunner) -> None:
    """Above twice `size`, chats are removed; the others lose the units of the largest of these."""
    units = {"c1": "9", "c2": "7", "c3": "3", "c4": "2", "c5": "1"}
    writes = [("writes", chat, amount) for chat, amount in units.items()]

    add(scripts, 1, *writes[:4])
    assert scripts.redis.zcard(scripts.keys.cost_writes(DAY)) == 4

    add(scripts, 2, writes[4])
    left = scripts.redis.zrange(scripts.keys.cost_writes(DAY), 0, -1, withscores=True)
    assert left == [("c2", 4.0), ("c1", 6.0)]
