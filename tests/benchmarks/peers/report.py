"""The tables of the comparison, as Markdown."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.peers.targets import TARGETS
from tests.benchmarks.support.measurements import Figures

BASE = "ours"
OTHERS_SHARE_MAX = 0.05
Results = dict[str, Any]  # of a workload, by server


def render(figures: Figures) -> str:
    """Return the tables: what each server keeps with its ratios, then the rates and CPU times."""
    workloads: dict[str, Results] = figures["workloads"]
    every = [*workloads.items()]
    ratios = [["server", "keeps", f"throughput, {BASE} = 1: {' / '.join(workloads)}"]]
    ratios[0] += [f"p99 in ms, {title}, at {_list_rates(results)}" for title, results in every]
    details = [["server"]]
    details[0] += [f"{title}: maximum; p50 in ms; CPU in µs per message" for title in workloads]
    for name, target in TARGETS.items():
        if not any(name in results for results in workloads.values()):
            continue
        row = [target.title, target.keeps]
        row += [" / ".join(_format_ratio(results, name) for _, results in every)]
        ratios.append(row + [_format_equal(results, name, "p99_ms") for _, results in every])
        row = [target.title]
        for _, results in every:
            p50, cpu = (_format_equal(results, name, key) for key in ("p50_ms", "cpu_us"))
            row.append(f"{_format_rate(results, name)}; {p50}; {cpu}")
        details.append(row)
    notes = [f"- {name} is left out: {why}" for name, why in figures["left_out"].items()]
    shares = [each["others_share"] for _, results in every for each in results.values()]
    if shares and max(shares) > OTHERS_SHARE_MAX:
        text = "other processes used up to {:.0%} of the servers' core, on average {:.0%}"
        notes.append("- " + text.format(max(shares), sum(shares) / len(shares)))
    for title, results in every:
        for name, each in results.items():
            if each["lost"] or each["duplicate"]:
                counts = f"{each['lost']} lost, {each['duplicate']} delivered twice"
                notes.append(f"- {name}, {title}: {counts}")
    return "\n\n".join([_render_table(ratios), _render_table(details), *notes])


def _sort_rates(results: Results) -> list[str]:
    return sorted({rate for each in results.values() for rate in each["equal"]}, key=int)


def _list_rates(results: Results) -> str:
    return " / ".join(f"{int(rate):,}" for rate in _sort_rates(results)) + " a second"


def _format_rate(results: Results, name: str) -> str:
    """Return the highest rate, with ≥ if the load generator limited it."""
    each = results.get(name)
    return _mark(each, f"{each['per_second']:,.0f}") if each else "-"


def _format_ratio(results: Results, name: str) -> str:
    each, base = results.get(name), results.get(BASE, {}).get("per_second")
    return _mark(each, f"{each['per_second'] / base:.2f}") if each and base else "-"


def _mark(each: Any, text: str) -> str:
    return f"{'≥ ' if each['is_lower_bound'] else ''}{text}"


def _format_equal(results: Results, name: str, key: str) -> str:
    """Return a figure at each of the equal rates; - where the server did not keep up."""
    equal = results.get(name, {}).get("equal", {})
    values = [equal.get(rate, {}).get(key) for rate in _sort_rates(results)]
    return " / ".join("-" if value is None else _format_number(value) for value in values)


def _format_number(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _render_table(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
