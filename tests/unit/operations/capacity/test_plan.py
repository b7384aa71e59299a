"""The capacity model of `chatserver plan`: sources, scaling, warnings and results."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chatserver.config import Settings
from chatserver.domain.messages import REF_TTL_S
from chatserver.errors import ConfigError
from chatserver.operations.capacity.cli import format_line
from chatserver.operations.capacity.formula_evaluation import list_names
from chatserver.operations.capacity.plan import (
    CapacityPlan,
    load_constants,
    make_plan,
)
from chatserver.operations.capacity.plan_inputs import INPUTS, PlanInputs, parse_inputs
from chatserver.operations.cost.prices import load_prices

PRICES = load_prices()
CONSTANTS, _ = load_constants()
# Values proportional to the number of users. The others are rounded up or constant.
LINEAR = (
    "connections",
    "messages_per_s",
    "active_chats",
    "gateway_cores",
    "redis_bytes",
    "write_units_per_s",
    "read_units_per_s",
    "dynamodb_bytes",
    "on_demand_usd",
    "provisioned_usd",
    "archive_bytes",
    "s3_usd",
    "egress_bytes",
)


def defaults(**changes: float) -> dict[str, float]:
    """Return the inputs with the defaults of the command."""
    return parse_inputs(PlanInputs()) | changes


def build_plan(removal: Any = "worker", **changes: float) -> CapacityPlan:
    """Return a plan with the constants and prices of the package."""
    return make_plan(defaults(**changes), removal, CONSTANTS, [], PRICES)


def values_of(plan: CapacityPlan) -> dict[str, float]:
    """Return the value of each row."""
    return {line.name: line.value for line in plan.lines}


def test_every_constant_has_a_source_and_is_used() -> None:
    """Each constant says how it was measured and occurs in a formula."""
    plan = build_plan()
    read = {name for line in plan.lines for name in list_names(line.formula)}

    assert set(CONSTANTS) - read == set()
    assert all(each.how and each.value is not None for each in CONSTANTS.values())


def test_constants_of_settings_equal_the_default_settings() -> None:
    """A changed default must be changed in the capacity model too."""
    settings_of_server = Settings()
    found = {name: each.value for name, each in CONSTANTS.items()}
    inputs = defaults()

    assert found["connections_per_gateway"] == settings_of_server.gateway.connections_max
    assert found["fanout_members_max"] == settings_of_server.chats.fanout_members_max
    assert found["body_inline_bytes_max"] == settings_of_server.warm.body_inline_bytes_max
    assert found["segment_entries_min"] == settings_of_server.archive.segment_entries_min
    assert found["archive_moves_per_day"] == 86_400 / settings_of_server.archive.wait_s
    assert inputs["inbox_max"] == settings_of_server.redis.inbox_max
    assert inputs["log_max"] == settings_of_server.redis.log_max
    assert REF_TTL_S == 86_400  # `refs_bytes` is for one day


@settings(max_examples=40, deadline=None)
@given(
    st.floats(1, 1e10),
    st.floats(1.1, 10),
    st.floats(0, 1),
    st.floats(2, 5000),
    st.floats(0.01, 500),
    st.floats(0.1, 1000),
)
def test_more_users_never_need_less_and_linear_values_scale(
    users: float, times: float, share: float, size: float, messages: float, retention: float
) -> None:
    """For any inputs, no value is negative or NaN."""
    others = {
        "group_share": share,
        "group_size": size,
        "messages_per_user_day": messages,
        "retention": retention,
    }
    less = values_of(build_plan(users=users, **others))
    more = values_of(build_plan(users=users * times, **others))

    # Fewer, larger nodes are a little cheaper per byte; partitions are per deployment.
    fewer = {"usd_per_user", "partitions", "masters", "redis_nodes"}
    cheaper = {"redis_usd", "total_usd", "total_provisioned_usd"}
    for name, value in less.items():
        assert math.isfinite(value) and value >= 0, name
        if name not in fewer:
            assert more[name] >= value * (0.99 if name in cheaper else 1 - 1e-9), name
    for name in LINEAR:
        assert more[name] == pytest.approx(less[name] * times, rel=1e-6), name


@pytest.mark.parametrize("users", [1, 10_000, 10_000_000, 1_000_000_000, 1e11])
def test_plan_of_any_size_is_consistent(users: float) -> None:
    """For 1 user to 100 billion, the plan has enough whole machines and a correct total."""
    plan = build_plan(users=users)
    found = values_of(plan)

    assert found["gateways"] >= 2
    assert found["gateways"] * 50_000 >= found["connections"]
    assert found["gateways"] >= found["gateway_cores"]
    assert found["masters"] >= found["redis_cores"]
    assert math.log2(found["partitions"]).is_integer()
    assert 1 <= found["partitions"] <= 1024
    assert found["redis_nodes"] <= found["deployments"] * 500
    assert found["masters"] / found["deployments"] <= found["partitions"]
    assert plan.usd_per_month["total"] == pytest.approx(
        sum(usd for tier, usd in plan.usd_per_month.items() if tier != "total")
    )


def test_plan_beyond_a_limit_has_a_warning() -> None:
    """A small plan has no warnings about limits; a large one names each."""
    small = " ".join(build_plan(users=1000).warnings)
    large = " ".join(build_plan(users=1e9).warnings)
    busy_plan = build_plan(
        users=100,
        chats_per_user=1,
        group_share=1,
        messages_per_user_day=1e5,
        group_size=100,
        peak=100,
    )
    busy = " ".join(busy_plan.warnings)
    wide = " ".join(build_plan(group_size=1000).warnings)

    assert "quota" not in small.lower() and "deployments" not in small
    assert "Service Quotas" in large
    assert "deployments" in large
    assert "shards" in busy
    assert "CHAT_CHATS_FANOUT_MEMBERS_MAX" in wide


def test_ttl_removal_saves_the_amount_of_the_warning() -> None:
    worker, ttl = build_plan(users=1e7), build_plan("ttl", users=1e7)
    units = values_of(worker)["write_units_message"] * values_of(worker)["messages_per_s"]

    saved = values_of(worker)["write_units_per_s"] - values_of(ttl)["write_units_per_s"]
    assert saved == pytest.approx(units)
    usd = worker.usd_per_month["dynamodb"] - ttl.usd_per_month["dynamodb"]
    assert any(
        f"{usd:,.0f} USD per month are for deleting archived messages" in each
        for each in worker.warnings
    )
    assert not any("deleting archived" in each for each in ttl.warnings)


def test_long_message_bodies_are_stored_in_s3() -> None:
    """A pointer to S3 costs one write unit; an inline body costs one per KB."""
    inline, long = (
        values_of(build_plan(message_bytes=30_000)),
        values_of(build_plan(message_bytes=100_000)),
    )

    assert inline["write_units_direct"] == pytest.approx(math.ceil(30_234 / 1024) + 3.02)
    assert long["write_units_direct"] == pytest.approx(4.02)
    assert inline["bodies_bytes"] == 0 < long["bodies_bytes"]


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_results_of_the_load_tool_override_constants(tmp_path: Path) -> None:
    """Measured constants replace the packaged ones; missing and unknown ones do not."""
    results = {
        "schema": 1,
        "scenario": "direct",
        "constants": {
            "gateway_cpu_us_per_message": {"value": 68.0, "unit": "µs", "how": "measured"},
            "redis_cpu_us_per_message": {"value": None, "unit": "µs", "how": "not found"},
            "redis_bytes_per_idle_session": {"value": -3.5, "unit": "bytes", "how": "it shrank"},
            "body_bytes": {"value": 200, "unit": "bytes", "how": "as sent"},
        },
    }
    constants, used = load_constants(write(tmp_path / "r.json", json.dumps(results)))

    plan = make_plan(defaults(), "worker", constants, used, PRICES)

    assert used == plan.from_results == ["gateway_cpu_us_per_message"]
    assert constants["redis_cpu_us_per_message"] == CONSTANTS["redis_cpu_us_per_message"]
    assert values_of(plan)["gateway_us"] == pytest.approx(
        values_of(build_plan())["gateway_us"] + 11
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("{", "truncated"),
        ('{"constants": {}}', "schema"),
        ('{"schema": 2, "constants": {}}', "schema 2, expected 1"),
        (
            '{"schema": 1, "constants": {"page_cpu_us": {"value": "a", "unit": "", "how": ""}}}',
            "$.constants",
        ),
    ],
)
def test_invalid_results_file_is_refused_by_name(
    tmp_path: Path, text: str | None, why: str
) -> None:
    """The error names the file and the reason."""
    path = tmp_path / "r.json"
    if text is not None:
        write(path, text)

    with pytest.raises(ConfigError) as refused:
        load_constants(path)

    assert str(path) in refused.value.problems[0]
    assert why in refused.value.problems[0]


def test_example_in_the_docs_equals_the_computed_plan() -> None:
    """The table of docs/capacity.md, cell by cell."""
    text = (Path(__file__).parents[4] / "docs" / "capacity.md").read_text("utf-8")
    plans = [{line.name: line for line in build_plan(users=n).lines} for n in (1e6, 1e8, 1e9)]
    rows = re.findall(r"^\| `(\w+)` \((.+?)\) \| (.+) \|$", text, re.M)

    assert len(rows) > 20
    for name, label, cells in rows:
        assert label == plans[0][name].label
        assert cells.split(" | ") == [format_line(each[name]) for each in plans], name
    for name in INPUTS:
        assert f"`--{name.replace('_', '-')}`" in text
