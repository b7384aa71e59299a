"""`chatserver plan` as one types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from chatserver.cli.main import cli


def run(*options: str) -> Result:
    """The command, without any settings."""
    return CliRunner().invoke(cli, ["plan", *options])


def test_plan_prints_each_tier_with_its_formulas() -> None:
    """Tables for people: values, formulas, what is measured, what to mind."""
    ran = run("--users", "10m", "--concurrent", "5%")

    assert ran.exit_code == 0, ran.output
    for word in ("Gateways", "Redis", "DynamoDB", "S3", "Network", "Total per month", "us-east-1"):
        assert word in ran.output
    assert "users=10m" in ran.output
    assert "connections = users * concurrent * devices" in ran.output
    assert "gateway_cpu_us_per_message" in ran.output
    assert "Service Quotas" in ran.output


def test_explain_has_the_numbers_and_where_they_come_from() -> None:
    """The formula, the formula with its numbers, each constant with how it was measured."""
    ran = run("--users", "1m", "--explain")

    assert "connections = users * concurrent * devices\n    = 1,000,000 * 0.05 * 1.2" in ran.output
    assert "page_cpu_us: 2600 µs; a page of 50 messages from DynamoDB" in ran.output


def test_json_has_all_of_it(tmp_path: Path) -> None:
    """For other programs; one's own prices and results are taken, and named."""
    prices, results = tmp_path / "p.toml", tmp_path / "r.json"
    prices.write_text('region = "eu-central-1"\n[network]\negress_per_gb_usd = 0\n', "utf-8")
    constant = {"value": 5, "unit": "", "how": "mine"}
    results.write_text(json.dumps({"schema": 1, "constants": {"page_cpu_us": constant}}), "utf-8")

    ran = run("--json", "--region-prices", str(prices), "--constants", str(results))
    made = json.loads(ran.output)

    assert made["prices_region"] == "eu-central-1"
    assert made["usd_per_month"]["network"] == 0
    assert made["from_results"] == ["page_cpu_us"]
    assert made["inputs"]["users"] == 10_000
    assert {"name", "value", "unit", "formula", "numbers", "constants"} <= set(made["lines"][0])


def test_constants_are_told_in_whole_numbers_and_one_in_the_singular() -> None:
    """The memory of a process is no power of ten."""
    lines = [" ".join(line.split()) for line in run().output.splitlines()]

    (process,) = [line for line in lines if line.startswith("process_bytes ")]
    (mark,) = [line for line in lines if line.startswith("write_units_per_mark ")]
    assert "e+" not in process and ",000 bytes" in process
    assert mark.startswith("write_units_per_mark 1 write unit ")


def test_all_that_is_wrong_is_said_at_once() -> None:
    """By the option's name, with how it is written."""
    ran = run("--users", "lots", "--concurrent", "120%", "--retention", "5GB")

    assert ran.exit_code == 2
    assert "--users: 'lots' is not a number; examples: 200, 2k, 1.5m, 3b" in ran.output
    assert "--concurrent: must be 0% to 100%; got 120%" in ran.output
    assert "--retention: '5GB' is not a time; examples: 12h, 90d, 4w, 2y" in ran.output


@pytest.mark.parametrize("option", ["--prices", "--constants"])
def test_file_that_is_not_there_is_named(option: str, tmp_path: Path) -> None:
    """`main` prints the error in a sentence."""
    ran = run(option, str(tmp_path / "nothing"))

    assert ran.exit_code != 0
    assert "nothing" in str(ran.exception)
