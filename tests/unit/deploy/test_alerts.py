"""Alerts, dashboard and runbooks hold to each other, to the metrics in code and to the commands.

Alerts are tried on planted samples; the same file passes `promtool test rules` (2.42).
"""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import shlex
import subprocess
import sys
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
# What Prometheus adds to each series, besides the job.
OF_SCRAPES = {"instance"}
_SECTIONS = (
    "What it means",
    "What users see",
    "Look",
    "Do",
    "Do not",
    "It is over when",
)


@cache
def rules() -> dict[str, dict[str, Any]]:
    """The alerts, by name."""
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in found}) == len(found)
    return {rule["alert"]: rule for rule in found}


@cache
def trials() -> list[dict[str, Any]]:
    """Inputs on which the alerts are tested."""
    text = (DEPLOY / "prometheus" / "alerts_test.yaml").read_text("utf-8")
    found: list[dict[str, Any]] = yaml.safe_load(text)["tests"]
    return found


def dashboard_queries() -> Iterator[tuple[str, str, str]]:
    """Panel, query and legend of all of the dashboard."""
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], query, target["legendFormat"]


def expressions() -> dict[str, str]:
    """All PromQL of ours, by where it is."""
    found = {f"alert {name}": rule["expr"] for name, rule in rules().items()}
    for trial in trials():
        found |= {
            f"{trial['name']}: {each['series']}": each["series"] for each in trial["input_series"]
        }
    for n, (panel, query, _) in enumerate(dashboard_queries()):
        found[f"panel {panel} {n}"] = query
    return found


@cache
def exported() -> dict[str, set[str]]:
    """Each name under which Prometheus has something of ours, and the labels it has."""
    found: dict[str, set[str]] = {}
    ours = [*vars(metrics).values(), *metrics.AUDIT_FINDINGS.values()]
    for each in (value for value in ours if not isinstance(value, type)):
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


def test_every_query_reads_metrics_and_labels_that_the_product_has() -> None:
    """Dashboard, alerts and what they are tried on: a metric that is renamed breaks this."""
    problems = []
    for where, text in expressions().items():
        parsed = promql_parser.parse(text)
        known = set(OF_SCRAPES)
        for selector in selectors_of(parsed):
            labels = exported().get(selector.name)
            if labels is None:
                problems.append(f"{where}: no metric {selector.name}")
                continue
            known |= labels
            for each in selector.matchers.matchers:
                if each.name not in labels | OF_SCRAPES:
                    problems.append(f"{where}: {selector.name} has no label {each.name}")
        problems += [
            f"{where}: nothing of it has a label {label}"
            for label in labels_named_in(parsed) - known
        ]
    assert problems == []


def test_every_legend_names_labels_that_its_query_leaves() -> None:
    """Each label in a legend exists in the result of its query."""
    for panel, query, legend in dashboard_queries():
        named = set(re.findall(r"{{(\w+)}}", legend))
        assert named <= labels_named_in(promql_parser.parse(query)), f"{panel}: {legend}"


def test_dashboard_shows_every_metric() -> None:
    """Every metric has a panel."""
    shown = {
        selector.name
        for _, query, _ in dashboard_queries()
        for selector in selectors_of(promql_parser.parse(query))
    }
    stems = {re.sub("_(total|bucket|sum|count)$", "", name) for name in shown}

    assert {re.sub("_(total|bucket|sum|count)$", "", name) for name in exported()} == stems


def test_dashboard_is_what_its_source_says() -> None:
    """`python deploy/grafana/render.py` wrote the file; panels do not lie on each other."""
    render = runpy.run_path(str(DEPLOY / "grafana" / "render.py"))["render"]
    source = tomllib.loads((DEPLOY / "grafana" / "panels.toml").read_text("utf-8"))
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))

    assert board == render(source)
    cells: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in board["panels"]):
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in taken) < 24
        cells |= taken
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def seconds(text: str) -> float:
    """A duration of Prometheus."""
    return 0.0 if text == "0s" else promql_parser.parse_duration(text).total_seconds()


class Alarm:
    """One alert on planted samples."""

    def __init__(self, trial: dict[str, Any], rule: dict[str, Any]) -> None:
        self.step = seconds(trial["interval"])
        series = [parse_series(e["series"], e["values"], self.step) for e in trial["input_series"]]
        self.answers, self.rule = Answers(series), rule

    def firing_at(self, until: float) -> list[dict[str, str]]:
        """The labels of what fires then: what held at each look since `for`, and before."""
        waits = seconds(self.rule.get("for", "0s"))
        since: dict[Any, float] = {}
        now = 0.0
        while now <= until:
            found = self.answers.at(self.rule["expr"], now)
            assert isinstance(found, dict), "an alert is a vector"
            since = {labels: since.get(labels, now) for labels in found}
            now += self.step
        last = now - self.step
        return [
            {**dict(labels), **self.rule["labels"]}
            for labels, start in since.items()
            if last - start >= waits
        ]


@pytest.mark.parametrize("trial", trials(), ids=lambda trial: str(trial["name"]))
def test_alert_is_quiet_while_all_is_well_and_fires_when_it_is_not(trial: dict[str, Any]) -> None:
    """Each alert can fire, with the labels that its texts name, and does not always."""
    rule = rules()[trial["name"]]
    alarm = Alarm(trial, rule)
    outcomes = []
    for check in trial["promql_expr_test"]:
        wanted = []
        for sample in check["exp_samples"]:
            labels = promql_parser.parse(sample["labels"]).matchers.matchers
            found = {each.name: each.value for each in labels}
            assert found.pop("alertname") == trial["name"]
            assert found.pop("alertstate") == "firing"
            wanted.append(found)
        firing = [
            {name: value for name, value in labels.items() if name != "__name__"}
            for labels in alarm.firing_at(seconds(check["eval_time"]))
        ]
        assert firing == wanted, check["eval_time"]
        outcomes.append(bool(wanted))
    assert outcomes == [False, True]
    texts = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= set(wanted[0])


def test_every_alert_is_tried_and_says_what_it_should() -> None:
    """Severity, texts and the way to its runbook."""
    assert {trial["name"] for trial in trials()} == set(rules())
    for name, rule in rules().items():
        assert re.fullmatch("Chat[A-Z][A-Za-z]+", name)
        assert rule["labels"]["severity"] in ("page", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"deploy/runbooks/{name}.md"
        # Without a `for` it has to look back over a while, so that it does not miss the moment.
        assert "for" in rule or "increase(" in rule["expr"]


def test_counters_that_alert_with_their_first_rise_are_there_before() -> None:
    """`increase` does not see a series come: each is exported as 0 when a process starts."""
    code = (
        "import prometheus_client, chatserver.telemetry.metrics\n"
        "print(prometheus_client.generate_latest().decode())"
    )
    text = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for name, rule in rules().items():
        if not rule["expr"].endswith("> 0") or "increase(" not in rule["expr"]:
            continue
        for selector in selectors_of(promql_parser.parse(rule["expr"])):
            lines = re.findall(rf"^{selector.name}({{.*}})? ", text, re.M)
            assert lines, f"{name}: {selector.name}"
            for each in selector.matchers.matchers:
                for word in each.value.split("|"):
                    assert any(f'{each.name}="{word}"' in line for line in lines), f"{name}: {word}"


@cache
def source() -> str:
    """All of the product's Python."""
    files = [*(ROOT / "chatserver").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]
    return "\n".join(path.read_text("utf-8") for path in files)


@cache
def panels() -> set[str]:
    """Titles of the dashboard's panels."""
    return {panel for panel, _, _ in dashboard_queries()}


def commands_in(text: str) -> Iterator[str]:
    """The commands of ours in a document: lines of code blocks, and whole code spans."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line.startswith("chatserver "):
                yield re.split(" [#>]", line)[0].strip()
    yield from re.findall(r"`(chatserver [^`]+)`", text)


def check_command(line: str) -> None:
    """Find the command and read its options as click would, without running it."""
    words = [re.sub(r"^[A-Z_]{2,}$", "1", word) for word in shlex.split(line)[1:]]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            break
        command, words = found, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    assert command is not cli, f"no such command: {line}"
    if isinstance(command, click.Group) and not command.invoke_without_command:
        pytest.fail(f"{line}: which of {command.list_commands(context)}?")
    with contextlib.suppress(click.exceptions.Exit):  # that is `--help`
        command.parse_args(context, words)


@pytest.mark.parametrize("name", sorted(rules()))
def test_runbook_says_what_to_do_with_commands_that_exist(name: str) -> None:
    """Every alert has a complete runbook, and its commands exist."""
    text = (RUNBOOKS / f"{name}.md").read_text("utf-8")

    assert text.startswith(f"# {name}\n")
    assert tuple(re.findall("^## (.+)$", text, re.M)) == _SECTIONS
    assert "chatserver " in text
    for line in commands_in(text):
        check_command(line)
    for metric in re.findall(r"`((?:chatserver|chat_audit)_\w+)[`{]", text):
        assert metric in exported(), metric
    for setting in re.findall(r"`(CHAT_[A-Z_]+[A-Z])[`=]", text):
        assert setting in config.list_variables(config.Settings), setting
    for event in re.findall(r"`([a-z]+\.[a-z_]+)`", text):
        assert f'"{event}"' in source(), event
    for panel in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", re.sub(r"\s+", " ", text)):
        assert panel in panels() or panel.islower(), panel
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (RUNBOOKS / link).exists(), link


def test_every_runbook_has_its_alert() -> None:
    """None is left of an alert that is gone."""
    names = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}

    assert names == set(rules())
