"""Unit costs measured by one run: the input of the capacity planner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatserver.loadtest.server_monitor import ServerSample

_NO_PROCESS = "not measured: no such process on this machine"
_NO_REDIS = "not measured: no access to Redis (CHAT_REDIS_URL)"
_OTHER = "not measured by this scenario"
_SENDING = ("direct", "small-groups", "large-groups")


def compute_constants(
    result: dict[str, Any], before: ServerSample, after: ServerSample
) -> dict[str, dict[str, Any]]:
    """Return each constant's value, unit and method; None for a value that was not measured."""
    counts, name = result["counts"], result["scenario"]["name"]
    messages = counts["acked"] if name in _SENDING else 0
    connects = counts["connects"] if name == "connect" else 0
    constants: dict[str, dict[str, Any]] = {}

    def put(key: str, unit: str, value: float | None, how: str, why_not: str) -> None:
        measured = None if value is None else round(value, 3)
        constants[key] = {"value": measured, "unit": unit, "how": why_not if value is None else how}

    def cpu_us(role: str, count: int) -> float | None:
        used = _compute_growth(before, after, lambda look: look.cpu_s.get(role))
        return None if used is None or not count else used * 1e6 / count

    why_not = _NO_PROCESS if messages else _OTHER
    for role in ("gateway", "redis"):
        basis = f"{role} CPU over {messages} acked messages"
        put(f"{role}_cpu_us_per_message", "us", cpu_us(role, messages), basis, why_not)
    # While commits wait in the backlog, it is unknown how many messages the workers have persisted.
    persisted = 0 if before.backlog or after.backlog else messages
    for role in ("worker", "dynamodb"):
        basis = f"{role} CPU over {persisted} messages that left the backlog during the run"
        put(f"{role}_cpu_us_per_message", "us", cpu_us(role, max(0, persisted)), basis, why_not)
    deliveries = counts["delivered"] if messages else 0
    basis = f"gateway CPU over {deliveries} deliveries"
    put("gateway_cpu_us_per_delivery", "us", cpu_us("gateway", deliveries), basis, why_not)
    per_message = deliveries / messages if messages else None
    put("deliveries_per_message", "", per_message, "events received over acked messages", _OTHER)
    for role in ("gateway", "redis"):
        basis = f"{role} CPU over {connects} connections"
        why_not = _NO_PROCESS if connects else _OTHER
        put(f"{role}_cpu_us_per_connect", "us", cpu_us(role, connects), basis, why_not)
    _put_memory(put, before, after, messages, connects)
    _put_units(put, before, after, messages, counts["pages"] if name == "history" else 0)
    put("body_bytes", "bytes", result["scenario"]["body_bytes"], "as sent", "")
    return constants


Put = Callable[[str, str, float | None, str, str], None]


def _put_memory(
    put: Put, before: ServerSample, after: ServerSample, messages: int, connects: int
) -> None:
    rss = _compute_growth(before, after, lambda look: look.rss.get("gateway"))
    used = _compute_growth(before, after, lambda look: look.redis_bytes)
    put(
        "gateway_bytes_per_idle_session",
        "bytes",
        rss / connects if rss is not None and connects else None,
        f"growth of resident memory over {connects} sessions, including the first ones",
        _NO_PROCESS if connects else _OTHER,
    )
    for name, count in (("idle_session", connects), ("message", messages)):
        put(
            f"redis_bytes_per_{name}",
            "bytes",
            used / count if used is not None and count else None,
            f"growth of used_memory over {count}",
            _NO_REDIS if count else _OTHER,
        )


def _put_units(
    put: Put, before: ServerSample, after: ServerSample, messages: int, pages: int
) -> None:
    stored = _compute_growth(before, after, lambda look: look.stored)
    written = _compute_growth(before, after, lambda look: look.write_units)
    read = _compute_growth(before, after, lambda look: look.read_units)
    put(
        "write_units_per_message",
        "write units",
        written / stored if written and stored and messages else None,
        f"units of the persist workers over {stored} messages stored, from the usage totals in "
        "Redis",
        "not measured: no worker reported usage during the run (reported every 10 s)"
        if messages
        else _OTHER,
    )
    put(
        "read_units_per_page",
        "read units",
        read / pages if read is not None and pages else None,
        f"units of history over {pages} pages, most of them from Redis",
        _NO_REDIS if pages else _OTHER,
    )


def _compute_growth(
    before: ServerSample, after: ServerSample, get: Callable[[ServerSample], float | None]
) -> float | None:
    first, last = get(before), get(after)
    return None if first is None or last is None else max(0.0, last - first)
