"""How the installation is: figures of all processes, what the audit found, what it costs.

For admins (`auth.admins`) and API keys with `operate`. Nothing here tells what anybody wrote: chats
and users are named by their ids.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.parts import ApiParts
from chatserver.api.security import admin_or_key
from chatserver.domain.audits import KINDS
from chatserver.domain.spending import Spending
from chatserver.hot.audits import AuditNotes, Found
from chatserver.hot.figures import FigureLog
from chatserver.hot.spending import Spendings
from chatserver.service import costs
from chatserver.service.overview import Overview, Overviews
from chatserver.service.prices import Prices, load_prices

OPERATE: Final = admin_or_key("operate")
DAYS: Final = 2  # today and the day before
FINDINGS_SHOWN_MAX: Final = 50
CHATS_SHOWN_MAX: Final = 10

After = Annotated[
    int,
    QueryParameter(ge=0, required=False, description="the `at_ms` of the newest point one has"),
]


class AuditFinding(msgspec.Struct, frozen=True):
    """Entries that are wrong, what that means and what to do. `at_ms`: when it was found."""

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
    """The last rounds of the continuous audit, one a partition, and what it found last.

    `oldest_ms`, `newest_ms`: when the rounds ended (null: none has). `failed`: chats that could not
    be looked at. `findings`: of the last rounds; `latest` may tell of rounds before.
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
    """Units that a feature took, and dollars; null where capacity is paid instead of units."""

    feature: str
    write_units: float
    read_units: float
    usd: float | None


class DayCost(msgspec.Struct, frozen=True):
    """A day (UTC). `usd_per_message`: all of it by the messages stored."""

    day: str
    messages: int
    usd: float | None
    usd_per_message: float | None
    features: list[FeatureCost]


class CostReport(msgspec.Struct, frozen=True):
    """Today and the day before, the newest first. `chats`: those that cost most, of both days.

    `write_unit_usd`, `read_unit_usd`: what a unit costs on demand; null with provisioned capacity.
    """

    billing: str
    region: str
    prices_as_of: str
    write_unit_usd: float | None
    read_unit_usd: float | None
    days: list[DayCost]
    chats: list[FeatureCost]


def operations_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return the routes of the admin page."""
    overviews = Overviews(FigureLog(parts.hot))
    notes, spendings, prices = AuditNotes(parts.hot), Spendings(parts.hot), load_prices()

    @get("/v1/admin/overview", opt={"rule": OPERATE})
    async def get_overview(after: After = 0) -> Overview:
        """Tell how all processes are, and how they were in the last ten minutes.

        A point of the past is two seconds; with `after` only newer ones are told.
        """
        return await overviews.get(after)

    @get("/v1/admin/audit", opt={"rule": OPERATE})
    async def get_audit() -> AuditReport:
        """Tell what the continuous audit (`chatserver worker audit`) found, and what to do."""
        return await _audit(notes, parts.hot.keys.partitions)

    @get("/v1/admin/cost", opt={"rule": OPERATE})
    async def get_cost() -> CostReport:
        """Tell what DynamoDB took today and yesterday, by feature; see `chatserver cost`."""
        today = datetime.datetime.fromtimestamp(parts.clock.time(), datetime.UTC).date()
        days = [(today - datetime.timedelta(n)).isoformat() for n in range(DAYS)]
        spent = {day: await spendings.get_day(day) for day in days}
        return make_cost_report(spent, prices, parts.settings.warm.billing)

    return [get_overview, get_audit, get_cost]


async def _audit(notes: AuditNotes, partitions: int) -> AuditReport:
    rounds = await notes.list_rounds()
    ends = [each.ended_ms for each in rounds]
    return AuditReport(
        partitions=partitions,
        audited=len(rounds),
        oldest_ms=min(ends, default=None),
        newest_ms=max(ends, default=None),
        chats=sum(each.chats for each in rounds),
        entries=sum(each.entries for each in rounds),
        unverified=sum(each.unverified for each in rounds),
        failed=sum(each.failed for each in rounds),
        findings=sum(each.findings for each in rounds),
        latest=[
            _finding(each)
            for each in await notes.list_findings(FINDINGS_SHOWN_MAX)
            if each.kind in KINDS  # of a newer release it may not be
        ],
    )


def _finding(each: Found) -> AuditFinding:
    category, meaning, advice = KINDS[each.kind]
    return AuditFinding(
        each.at_ms,
        category,
        each.kind,
        each.chat,
        each.first,
        each.last,
        each.where,
        meaning,
        advice,
    )


def make_cost_report(
    spent: dict[str, Spending], prices: Prices, billing: costs.Billing
) -> CostReport:
    """Return the report of days, as they are given."""
    rates = costs.on_demand_rates(prices)
    has_usd = billing == "on_demand"
    whole = costs.add_up(spent.values())
    return CostReport(
        billing=billing,
        region=prices.region,
        prices_as_of=prices.as_of,
        write_unit_usd=rates.write_usd if has_usd else None,
        read_unit_usd=rates.read_usd if has_usd else None,
        days=[_day(day, each, rates, has_usd=has_usd) for day, each in spent.items()],
        chats=[
            FeatureCost(line.name, line.write_units, line.read_units, line.usd if has_usd else None)
            for line in costs.chat_lines(whole, rates, CHATS_SHOWN_MAX)
        ],
    )


def _day(day: str, spending: Spending, rates: costs.Rates, *, has_usd: bool) -> DayCost:
    total = costs.total_line(spending, rates)
    message = costs.message_line(total, spending.messages)
    sums: dict[str, tuple[float, float, float]] = {}
    for line in costs.feature_lines(spending, rates):
        write, read, usd = sums.get(line.name, (0.0, 0.0, 0.0))
        sums[line.name] = write + line.write_units, read + line.read_units, usd + line.usd
    dearest = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    return DayCost(
        day,
        spending.messages,
        total.usd if has_usd else None,
        message.usd if has_usd and message is not None else None,
        [
            FeatureCost(name, write, read, usd if has_usd else None)
            for name, (write, read, usd) in dearest
        ],
    )
