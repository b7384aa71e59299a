"""Alerts, dashboard and runbooks match each other, the product's metrics and its commands.

Alerts are tested with sample series; the same file passes `promtool test rules` (2.42).
"""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import promql_parser
import pytest
import yaml

from chatserver import config
from chatserver.cli.main import cli
from chatserver.telemetry import metrics
from tests.support.promql import Answers, labels_named_in, parse_series, selectors_of

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
RUNBOOKS = DEPLOY / "runbooks"
# Labels that Prometheus adds to each series, besides the job.
SCRAPE_LABELS = {"instance"}
_SECTIONS = (
    "What it means",
    "What users see",
    "Diagnosis",
    "What to do",
    "What not to do",
    "Resolved when",
)


@cache
def rules() -> dict[str, dict[str, Any]]:
    """Return the alerts by name."""
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in found}) == len(found)
    return {rule["alert"]: rule for rule in found}


@cache
def alert_tests() -> list[dict[str, Any]]:
    """Return the sample series and expected results of the alerts."""
    text = (DEPLOY / "prometheus" / "alerts_test.yaml").read_text("utf-8")
    found: list[dict[str, Any]] = yaml.safe_load(text)["tests"]
    return found


def dashboard_queries() -> Iterator[tuple[str, str, str]]:
    """Yield panel, query and legend of the dashboard."""
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], query, target["legendFormat"]


def expressions() -> dict[str, str]:
    """Return all PromQL expressions by the place of their use."""
    found = {f"alert {name}": rule["expr"] for name, rule in rules().items()}
    for alert_test in alert_tests():
        found |= {
            f"{alert_test['name']}: {each['series']}": each["series"]
            for each in alert_test["input_series"]
        }
    for n, (panel, query, _) in enumerate(dashboard_queries()):
        found[f"panel {panel} {n}"] = query
    return found


@cache
def exported_metrics() -> dict[str, set[str]]:
    """Return the metric names that Prometheus stores, with their labels."""
    found: dict[str, set[str]] = {}
    declared = [*vars(metrics).values(), *metrics.AUDIT_FINDINGS.values()]
    for each in (value for value in declared if not isinstance(value, type)):
        for family in each.describe() if hasattr(each, "describe") else ():
            name, labels = family.name, set(getattr(each, "_labelnames", ()))
            match family.type:
                case "counter":
                    found[f"{name}_total"] = labels
                case "histogram":
                    found[f"{name}_bucket"] = labels | {"le"}
                    found |= {f"{name}_{part}": labels for part in ("sum", "count")}
                case _:
                    found[name] = labels
    return found


def test_every_query_uses_existing_metrics_and_labels() -> None:
    """A renamed metric breaks the dashboard, the alerts or their tests."""
    problems = []
    for where, text in expressions().items():
        parsed = promql_parser.parse(text)
        known = set(SCRAPE_LABELS)
        for selector in selectors_of(parsed):
            labels = exported_metrics().get(selector.name)
            if labels is None:
                problems.append(f"{where}: no metric {selector.name}")
                continue
            known |= labels
            for each in selector.matchers.matchers:
                if each.name not in labels | SCRAPE_LABELS:
                    problems.append(f"{where}: {selector.name} has no label {each.name}")
        problems += [
            f"{where}: none of its metrics has a label {label}"
            for label in labels_named_in(parsed) - known
        ]
    assert problems == []


def test_every_legend_uses_labels_of_its_query_result() -> None:
    for panel, query, legend in dashboard_queries():
        named = set(re.findall(r"{{(\w+)}}", legend))
        assert named <= labels_named_in(promql_parser.parse(query)), f"{panel}: {legend}"


def test_dashboard_shows_every_metric() -> None:
    shown = {
        selector.name
        for _, query, _ in dashboard_queries()
        for selector in selectors_of(promql_parser.parse(query))
    }
    stems = {re.sub("_(total|bucket|sum|count)$", "", name) for name in shown}

    assert {re.sub("_(total|bucket|sum|count)$", "", name) for name in exported_metrics()} == stems


def test_dashboard_is_current_and_its_panels_do_not_overlap() -> None:
    """`python deploy/grafana/render.py` writes the file."""
    render = runpy.run_path(str(DEPLOY / "grafana" / "render.py"))["render"]
    source = tomllib.loads((DEPLOY / "grafana" / "panels.toml").read_text("utf-8"))
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))

    assert board == render(source)
    cells: set[tuple[int, int]] = set()
    for position in (panel["gridPos"] for panel in board["panels"]):
        panel_cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & panel_cells
        assert max(x for x, _ in panel_cells) < 24
        cells |= panel_cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def seconds(text: str) -> float:
    """Return a Prometheus duration in seconds."""
    return 0.0 if text == "0s" else promql_parser.parse_duration(text).total_seconds()


class AlertEvaluation:
    """Evaluates one alert on sample series."""

    def __init__(self, alert_test: dict[str, Any], rule: dict[str, Any]) -> None:
        self.step = seconds(alert_test["interval"])
        series = [
            parse_series(e["series"], e["values"], self.step) for e in alert_test["input_series"]
        ]
        self.answers, self.rule = Answers(series), rule

    def firing_at(self, until: float) -> list[dict[str, str]]:
        """Return the labels of the alerts that have been active for the duration of `for`."""
        for_s = seconds(self.rule.get("for", "0s"))
        since: dict[Any, float] = {}
        now = 0.0
        while now <= until:
            found = self.answers.at(self.rule["expr"], now)
            assert isinstance(found, dict), "the expression of an alert must return a vector"
            since = {labels: since.get(labels, now) for labels in found}
            now += self.step
        last = now - self.step
        return [
            {**dict(labels), **self.rule["labels"]}
            for labels, start in since.items()
            if last - start >= for_s
        ]


@pytest.mark.parametrize(
    "alert_test", alert_tests(), ids=lambda alert_test: str(alert_test["name"])
)
def test_alert_fires_only_on_bad_samples(alert_test: dict[str, Any]) -> None:
    """The firing alert has the labels that its texts use."""
    rule = rules()[alert_test["name"]]
    evaluation = AlertEvaluation(alert_test, rule)
    outcomes = []
    for check in alert_test["promql_expr_test"]:
        expected = []
        for sample in check["exp_samples"]:
            labels = selectors_of(promql_parser.parse(sample["labels"]))[0].matchers.matchers
            found = {each.name: each.value for each in labels}
            assert found.pop("alertname") == alert_test["name"]
            assert found.pop("alertstate") == "firing"
            expected.append(found)
        firing = [
            {name: value for name, value in labels.items() if name != "__name__"}
            for labels in evaluation.firing_at(seconds(check["eval_time"]))
        ]
        assert firing == expected, check["eval_time"]
        outcomes.append(bool(expected))
    assert outcomes == [False, True]
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= set(expected[0])


def test_every_alert_has_a_test_severity_texts_and_runbook() -> None:
    assert {alert_test["name"] for alert_test in alert_tests()} == set(rules())
    for name, rule in rules().items():
        assert re.fullmatch("Chat[A-Z][A-Za-z]+", name)
        assert rule["labels"]["severity"] in ("page", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"deploy/runbooks/{name}.md"
        # An alert without `for` must use a time range, so that it does not miss a short event.
        assert "for" in rule or "increase(" in rule["expr"]


@cache
def source() -> str:
    """Return the product's Python code."""
    files = [*(ROOT / "chatserver").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]
    return "\n".join(path.read_text("utf-8") for path in files)


@cache
def panels() -> set[str]:
    """Return the titles of the dashboard's panels."""
    return {panel for panel, _, _ in dashboard_queries()}


def commands_in(text: str) -> Iterator[str]:
    """Yield the chatserver commands in code blocks and code spans of a document."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line.startswith("chatserver "):
                yield re.split(" [#>]", line)[0].strip()
    yield from re.findall(r"`(chatserver [^`]+)`", text)


def check_command(line: str) -> None:
    """Parse the command and its options as click does, without running it."""
    args = [re.sub(r"^[A-Z_]{2,}$", "1", word) for word in shlex.split(line)[1:]]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and args and not args[0].startswith("-"):
        found = command.get_command(context, args[0])
        if found is None:
            break
        command, args = found, args[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    assert command is not cli, f"no such command: {line}"
    if isinstance(command, click.Group) and not command.invoke_without_command:
        pytest.fail(f"{line}: needs one of {command.list_commands(context)}")
    with contextlib.suppress(click.exceptions.Exit):  # `--help` exits
        command.parse_args(context, args)


@pytest.mark.parametrize("name", sorted(rules()))
def test_runbook_is_complete_and_names_only_what_exists(name: str) -> None:
    """All commands, metrics, settings, log events, panels and links of a runbook exist."""
    text = (RUNBOOKS / f"{name}.md").read_text("utf-8")

    assert text.startswith(f"# {name}\n")
    assert tuple(re.findall("^## (.+)$", text, re.M)) == _SECTIONS
    assert "chatserver " in text
    for line in commands_in(text):
        check_command(line)
    for metric in re.findall(r"`((?:chatserver|chat_audit)_\w+)[`{]", text):
        assert metric in exported_metrics(), metric
    for setting in re.findall(r"`(CHAT_[A-Z_]+[A-Z])[`=]", text):
        assert setting in config.list_variables(), setting
    for event in re.findall(r"`([a-z]+\.[a-z_]+)`", text):
        assert f'"{event}"' in source(), event
    for panel in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", re.sub(r"\s+", " ", text)):
        assert panel in panels() or panel.islower(), panel
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (RUNBOOKS / link).exists(), link


def test_every_runbook_has_an_alert() -> None:
    """A removed alert leaves no runbook behind."""
    names = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}

    assert names == set(rules())
