"""HTTP routes of the admin page: process statistics, audit report and cost.

The routes require an admin (`auth.admins`) or an API key with the `operate` scope. Responses
contain no message text; chats and users appear only by id.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.authorization import admin_or_key
from chatserver.container.storage import StorageContainer
from chatserver.operations.audit.hot import AuditResults, DatedFinding
from chatserver.operations.audit.model import KINDS
from chatserver.operations.cost import report as costs
from chatserver.operations.cost.hot import UsageTotals
from chatserver.operations.cost.prices import Prices, load_prices
from chatserver.operations.overview.hot import ProcessStatsLog
from chatserver.operations.overview.service import Overview, Overviews
from chatserver.telemetry.dynamodb_usage import Spending

OPERATE: Final = admin_or_key("operate")
DAYS: Final = 2  # number of days shown: today and the day before
FINDINGS_SHOWN_MAX: Final = 50
CHATS_SHOWN_MAX: Final = 10
_SUMMED: Final = ("chats", "entries", "unverified", "failed", "findings")  # of all partitions

After = Annotated[
    int,
    QueryParameter(ge=0, required=False, description="the `at_ms` of the newest known point"),
]


class AuditFinding(msgspec.Struct, frozen=True):
    """A range of inconsistent entries, with meaning and advice. `at_ms` is the detection time."""

    at_ms: int
    category: str
    kind: str
    chat: str
    first: int
    last: int
    where: str
    meaning: str
    advice: str


class AuditReport(msgspec.Struct, frozen=True):
    """The last pass of the continuous audit over each partition, and the latest findings.

    `oldest_ms` and `newest_ms` are the earliest and latest end times of these passes, null if there
    are none. `failed` and `findings` refer to the same passes: the number of chats that could not
    be checked, and the number of findings. `latest` may include findings from earlier passes.
    """

    partitions: int
    audited: int
    oldest_ms: int | None
    newest_ms: int | None
    chats: int
    entries: int
    unverified: int
    failed: int
    findings: int
    latest: list[AuditFinding]


class FeatureCost(msgspec.Struct, frozen=True):
    """Units consumed by a feature or a chat; `usd` is null with provisioned capacity."""

    feature: str
    write_units: float
    read_units: float
    usd: float | None


class DayCost(msgspec.Struct, frozen=True):
    """Cost of one day (UTC). `usd_per_message` is the total per stored message."""

    day: str
    messages: int
    usd: float | None
    usd_per_message: float | None
    features: list[FeatureCost]


class CostReport(msgspec.Struct, frozen=True):
    """Cost of today and yesterday, newest first.

    `chats` contains the most expensive chats over both days. `write_unit_usd` and `read_unit_usd`
    are the on-demand prices per unit, null with provisioned capacity.
    """

    billing: str
    region: str
    prices_as_of: str
    write_unit_usd: float | None
    read_unit_usd: float | None
    days: list[DayCost]
    chats: list[FeatureCost]


def build_operations_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    overviews = Overviews(ProcessStatsLog(container.hot))
    audit_results, usage_totals = AuditResults(container.hot), UsageTotals(container.hot)
    prices = load_prices()

    @get("/v1/admin/overview", opt={"rule": OPERATE})
    async def get_overview(after: After = 0) -> Overview:
        """Return the state of all processes and the history of the last ten minutes.

        A history point covers two seconds; with `after`, only newer points are returned.
        """
        return await overviews.get(after)

    @get("/v1/admin/audit", opt={"rule": OPERATE})
    async def get_audit() -> AuditReport:
        """Return the findings of the continuous audit (`chatserver worker audit`), with advice."""
        return await _make_audit_report(audit_results, container.hot.keys.partitions)

    @get("/v1/admin/cost", opt={"rule": OPERATE})
    async def get_cost() -> CostReport:
        """Return the DynamoDB usage of today and yesterday, by feature; see `chatserver cost`."""
        today = datetime.datetime.fromtimestamp(container.clock.time(), datetime.UTC).date()
        days = [(today - datetime.timedelta(n)).isoformat() for n in range(DAYS)]
        spent = {day: await usage_totals.get_day(day) for day in days}
        return make_cost_report(spent, prices, container.settings.warm.billing)

    return [get_overview, get_audit, get_cost]


async def _make_audit_report(audit_results: AuditResults, partitions: int) -> AuditReport:
    rounds = await audit_results.list_rounds()
    ends = [audit_round.ended_ms for audit_round in rounds]
    return AuditReport(
        partitions=partitions,
        audited=len(rounds),
        oldest_ms=min(ends, default=None),
        newest_ms=max(ends, default=None),
        **{name: sum(getattr(audit_round, name) for audit_round in rounds) for name in _SUMMED},
        latest=[
            _make_finding(finding)
            for finding in await audit_results.list_findings(FINDINGS_SHOWN_MAX)
            if finding.kind in KINDS  # a newer release may write unknown kinds
        ],
    )


def _make_finding(finding: DatedFinding) -> AuditFinding:
    category, meaning, advice = KINDS[finding.kind]
    fields = msgspec.structs.asdict(finding)
    return AuditFinding(**fields, category=category, meaning=meaning, advice=advice)


def make_cost_report(
    spent: dict[str, Spending], prices: Prices, billing: costs.Billing
) -> CostReport:
    """Return the cost report for the given days, in the same order."""
    rates = costs.on_demand_rates(prices)
    has_usd = billing == "on_demand"
    total_spending = costs.sum_days(spent.values())
    return CostReport(
        billing=billing,
        region=prices.region,
        prices_as_of=prices.as_of,
        write_unit_usd=rates.write_usd if has_usd else None,
        read_unit_usd=rates.read_usd if has_usd else None,
        days=[_make_day_cost(day, units, rates, has_usd=has_usd) for day, units in spent.items()],
        chats=[
            FeatureCost(line.name, line.write_units, line.read_units, line.usd if has_usd else None)
            for line in costs.build_chat_lines(total_spending, rates, CHATS_SHOWN_MAX)
        ],
    )


def _make_day_cost(day: str, spending: Spending, rates: costs.Rates, *, has_usd: bool) -> DayCost:
    total = costs.total_line(spending, rates)
    message = costs.build_message_line(total, spending.messages)
    sums: dict[str, tuple[float, float, float]] = {}
    for line in costs.build_feature_lines(spending, rates):
        write, read, usd = sums.get(line.name, (0.0, 0.0, 0.0))
        sums[line.name] = write + line.write_units, read + line.read_units, usd + line.usd
    by_cost = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    return DayCost(
        day,
        spending.messages,
        total.usd if has_usd else None,
        message.usd if has_usd and message is not None else None,
        [
            FeatureCost(name, write, read, usd if has_usd else None)
            for name, (write, read, usd) in by_cost
        ],
    )
