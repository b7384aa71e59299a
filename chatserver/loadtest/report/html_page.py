"""HTML report of a load test: one self-contained file with light and dark themes. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from chatserver.loadtest.report.charts import build_charts
from chatserver.loadtest.report.svg_charts import Chart, draw

ROWS_MAX: Final = 120  # maximum rows of a chart's table of values
_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfbf9; --card: #fff; --ink: #1d2327; --soft: #5b656c;
  --rule: #dfe3e4; --good: #14724a; --bad: #b3261e;
  --s0: #2f6fbb; --s1: #b4551a; --s2: #21805c; --s3: #8d3f97; --s4: #6b6f1d; --s5: #b3315f; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181b; --card: #1c2226; --ink: #e6eaec; --soft: #a3afb6; --rule: #343d43;
  --good: #5fc795; --bad: #ff8f85;
  --s0: #79b0f0; --s1: #f0a26b; --s2: #66c9a0; --s3: #d490de; --s4: #c5c95f; --s5: #f38cb0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem clamp(1rem, 3vw, 2rem) 3rem; max-width: 84rem;
  background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; line-height: 1.2; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .3rem 0; max-width: 46rem; }
.soft, caption { color: var(--soft); }
.verdict { display: inline-block; margin: .8rem 0 .4rem; padding: .15rem .7rem; border-radius: 1rem;
  border: 2px solid currentColor; font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); }
.tiles { display: grid; gap: .7rem; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  margin: 1rem 0 0; padding: 0; }
.tiles div, figure { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem; }
.tiles div { padding: .6rem .8rem; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles small { font-size: .8rem; font-weight: 400; color: var(--soft); }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); align-items: start; }
figure { margin: 0; padding: .8rem; min-width: 0; }
figure p { font-size: .85rem; color: var(--soft); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--rule); } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.key { display: flex; flex-wrap: wrap; gap: .1rem .9rem; margin: .2rem 0; padding: 0;
  list-style: none; font-size: .85rem; }
.key svg { display: inline-block; width: 1.6rem; height: .6rem; margin-right: .35rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; }
th { font-weight: 600; } tbody th { font-weight: 400; }
th:first-child { text-align: left; padding-left: 0; }
.text { text-align: left; } td.text:last-child { white-space: normal; min-width: 16rem; }
.counts, .facts { columns: 13rem; column-gap: 2.5rem; margin: 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
.counts div, .facts div { display: flex; justify-content: space-between; gap: 1rem;
  border-bottom: 1px solid var(--rule); padding: .15rem 0; break-inside: avoid; }
.counts dd, .facts dd { margin: 0; text-align: right; } .facts { columns: 20rem; }
pre { overflow-x: auto; }
details { margin-top: .5rem; font-size: .9rem; }
summary { cursor: pointer; color: var(--soft); }
details .scroll { max-height: 18rem; overflow: auto; }
:focus-visible { outline: 2px solid var(--s0); outline-offset: 2px; }
@media (forced-colors: active) { .line { stroke: CanvasText; } }
"""
_DASHES = ("none", "6 3", "2 2", "9 3 2 3", "12 4", "1 3")


def render(result: dict[str, Any]) -> str:
    name = str(result["scenario"]["name"])
    lines = [
        f".s{n} {{ stroke: var(--s{n}); stroke-dasharray: {dash}; }} "
        f".dot.s{n} {{ fill: var(--s{n}); }}"
        for n, dash in enumerate(_DASHES)
    ]
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; ',
        "style-src 'unsafe-inline'\">",
        f"<title>Load: {escape(name)}</title><style>{_STYLE}{''.join(lines)}</style></head><body>",
        *_render_head(result),
        '<main><h2>Results</h2><div class="charts">',
        *(_render_figure(chart, number) for number, chart in enumerate(build_charts(result))),
        "</div>",
        *_render_tables(result),
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _render_head(result: dict[str, Any]) -> Iterator[str]:
    scenario, counts, tool = result["scenario"], result["counts"], result["tool"]
    verdict = result["verdict"]
    yield f"<header><h1>Load: {escape(scenario['name'])}</h1>"
    yield f"<p>{escape(scenario['about'])}</p>"
    kinds = [f"{count} {kind}" for kind, count in scenario["chats"].items()]
    chats = f"chats: {', '.join(kinds)}" if kinds else "no chats"
    rate = scenario["rate_per_s"]
    actions = "a script" if rate is None else f"{rate:g} actions a second, whatever the server does"
    yield (
        f'<p class="soft">{scenario["users"]} users, {escape(chats)}; '
        f"{actions}; {scenario['took_s']:g} s; {scenario['body_bytes']} bytes a message; "
        f"{escape(result['at'])}; "
        f"{escape(result['target']['url'])}</p>"
    )
    words = "All thresholds met" if verdict["is_ok"] else "A threshold was exceeded"
    yield f'<p class="verdict {"good" if verdict["is_ok"] else "bad"}">{words}</p>'
    for text in verdict["broken"]:
        yield f'<p class="bad">{escape(text)}</p>'
    if result["ended"] != "done":
        yield f'<p class="bad">The load was {escape(result["ended"])}: the results are partial.</p>'
    used = tool["used_of_ceiling"]
    yield '<dl class="tiles">'
    yield _render_tile("Offered", f"{result['rates']['offered_per_s']:g}", "a second")
    yield _render_tile("Delivered", f"{result['rates']['delivered_per_s']:g}", "a second")
    for latency in ("delivered", "page", "connect", "resume"):
        row = result["latency_ms"].get(latency)
        if row is not None:
            yield _render_tile(f"p50 of {latency}", f"{row['p50']:g}", "ms")
            yield _render_tile(f"p99 of {latency}", f"{row['p99']:g}", "ms")
            break
    yield _render_tile("Lost", str(counts["lost"]), f"of {counts['expected']}")
    wrong = counts["duplicate"] + counts["disordered"] + counts["jumped"] + counts["mismatched"]
    yield _render_tile("Repeated or out of order", str(wrong), "")
    if used is not None:
        yield _render_tile("Tool used", f"{used:.1%}", "of its ceiling")
    yield "</dl></header>"


def _render_tile(name: str, value: str, unit: str) -> str:
    return (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)} <small>{escape(unit)}</small></dd></div>"
    )


def _render_figure(chart: Chart, number: int) -> str:
    keys = "".join(
        f'<li><svg viewBox="0 0 26 8" aria-hidden="true"><line class="line s{n}" x1="0" y1="4" '
        f'x2="26" y2="4"/></svg>{escape(line.name)}</li>'
        for n, line in enumerate(chart.lines)
    )
    return (
        f"<figure><h3>{escape(chart.title)} "
        f'<small class="soft">{escape(chart.y_label)}</small></h3>'
        f'<ul class="key">{keys}</ul>{draw(chart, number)}<figcaption><p>{escape(chart.about)}</p>'
        f"</figcaption><details><summary>As a table</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(chart.title)}">'
        f"{_render_chart_table(chart)}</div></details></figure>"
    )


def _render_chart_table(chart: Chart) -> str:
    labels = {round(x, 6): label for x, label in chart.ticks}
    by_x: dict[float, dict[str, float | None]] = {}
    for line in chart.lines:
        for x, y in line.points:
            by_x.setdefault(x, {})[line.name] = y
    xs = sorted(by_x)
    step = -(-len(xs) // ROWS_MAX)
    if chart.ticks:
        xs = [x for x in xs if round(x, 6) in labels] or xs
        step = 1
    rows = [
        [labels.get(round(x, 6), f"{x:g}"), *(by_x[x].get(line.name) for line in chart.lines)]
        for x in xs[:: step or 1]
    ]
    return _render_table(["", *(line.name for line in chart.lines)], rows, chart.x_label)


def _render_tables(result: dict[str, Any]) -> Iterator[str]:
    latencies = result["latency_ms"]
    if latencies:
        heads = list(next(iter(latencies.values())))
        rows = [[name, *(row[head] for head in heads)] for name, row in latencies.items()]
        yield "<h2>Latencies</h2>" + _render_scrollable(
            _render_table(["", *(head.replace("_", ".") for head in heads)], rows, "milliseconds"),
            "Latencies",
        )
    yield '<h2>Counts</h2><dl class="counts">'
    for name, counts in result["counts"].items():
        for key, count in (counts if isinstance(counts, dict) else {"": counts}).items():
            label = f"{name} {key}".strip().replace("_", " ")
            yield f"<div><dt>{escape(label)}</dt><dd>{count}</dd></div>"
    yield "</dl>"
    if result["first_error"]:
        yield f"<h2>First exception</h2><pre>{escape(result['first_error'])}</pre>"
    if result["examples"]:
        items = "".join(f"<li>{escape(text)}</li>" for text in result["examples"])
        yield f"<h2>Notes</h2><ul>{items}</ul>"
    constants = [
        [name, constant["value"], constant["unit"], constant["how"]]
        for name, constant in result["constants"].items()
        if constant["value"] is not None
    ]
    yield "<h2>Constants for the capacity planner</h2>" + _render_scrollable(
        _render_table(["", "value", "unit", "how"], constants, ""), "Constants"
    )
    missing = [name for name, constant in result["constants"].items() if constant["value"] is None]
    if missing:
        yield f'<p class="soft">Not measured: {escape(", ".join(missing))}.</p>'
    facts = [
        [
            name,
            value
            if not isinstance(value, list)
            else ", ".join(f"{amount:.3g}" for amount in value),
        ]
        for part in ("machine", "versions")
        for name, value in result[part].items()
    ]
    yield '<h2>Measured with</h2><dl class="facts">'
    for name, value in facts:
        yield f"<div><dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd></div>"
    yield "</dl>"


def _render_scrollable(table: str, name: str) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{table}</div>'
    )


def _render_table(heads: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> str:
    words = {n for n in range(1, len(heads)) if all(isinstance(row[n], str) for row in rows)}
    kinds = [' class="text"' if n in words else "" for n in range(len(heads))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>'
        for name, kind in zip(heads, kinds, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(str(first))}</th>'
        f"{''.join(map(_render_cell, rest, kinds[1:]))}</tr>"
        for first, *rest in rows
    )
    caption = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _render_cell(value: object, kind: str) -> str:
    if value is None:
        return "<td>&ndash;</td>"
    text = f"{value:g}" if isinstance(value, float) and abs(value) < 1e5 else str(value)
    return f"<td{kind}>{escape(text)}</td>"
