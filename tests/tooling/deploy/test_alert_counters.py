"""Counters with alerts, as a new process exports them."""

from __future__ import annotations

import re
import subprocess
import sys

import promql_parser

from tests.support.promql import selectors_of
from tests.unit.deploy.test_alerts import rules


def test_counters_that_alert_on_the_first_increase_are_exported_as_0() -> None:
    """`increase` does not count the first sample of a series that appears later."""
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
