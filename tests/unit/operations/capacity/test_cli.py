"""The command `chatserver plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from chatserver.cli.main import cli


def run(*options: str) -> Result:
    """Run the command without settings."""
    return CliRunner().invoke(cli, ["plan", *options])


def test_plan_prints_each_tier_with_its_formulas() -> None:
    """The default output has values, formulas, measured constants and warnings."""
    result = run("--users", "10m", "--concurrent", "5%")

    assert result.exit_code == 0, result.output
    for text in ("Gateways", "Redis", "DynamoDB", "S3", "Network", "Total per month", "us-east-1"):
        assert text in result.output
    assert "users=10m" in result.output
    assert "connections = users * concurrent * devices" in result.output
    assert "gateway_cpu_us_per_message" in result.output
    assert "Service Quotas" in result.output


def test_explain_prints_formulas_with_numbers_and_sources() -> None:
    """Each formula is printed with its numbers, each constant with its measurement."""
    result = run("--users", "1m", "--explain")

    assert (
        "connections = users * concurrent * devices\n    = 1,000,000 * 0.05 * 1.2" in result.output
    )
    assert "page_cpu_us: 2600 µs; a page of 50 messages from DynamoDB" in result.output


def test_json_contains_inputs_lines_and_prices(tmp_path: Path) -> None:
    """Files with prices and results are applied and named."""
    prices, results = tmp_path / "p.toml", tmp_path / "r.json"
    prices.write_text('region = "eu-central-1"\n[network]\negress_per_gb_usd = 0\n', "utf-8")
    constant = {"value": 5, "unit": "", "how": "measured"}
    results.write_text(json.dumps({"schema": 1, "constants": {"page_cpu_us": constant}}), "utf-8")

    result = run("--json", "--region-prices", str(prices), "--constants", str(results))
    document = json.loads(result.output)

    assert document["prices_region"] == "eu-central-1"
    assert document["usd_per_month"]["network"] == 0
    assert document["from_results"] == ["page_cpu_us"]
    assert document["inputs"]["users"] == 10_000
    assert {"name", "value", "unit", "formula", "numbers", "constants"} <= set(document["lines"][0])


def test_constants_are_printed_without_exponent_and_with_singular_units() -> None:
    lines = [" ".join(line.split()) for line in run().output.splitlines()]

    (process,) = [line for line in lines if line.startswith("process_bytes ")]
    (mark,) = [line for line in lines if line.startswith("write_units_per_mark ")]
    assert "e+" not in process and ",000 bytes" in process
    assert mark.startswith("write_units_per_mark 1 write unit ")


def test_all_invalid_options_are_reported_at_once() -> None:
    """Each error names the option and shows valid examples."""
    result = run("--users", "lots", "--concurrent", "120%", "--retention", "5GB")

    assert result.exit_code == 2
    assert "--users: 'lots' is not a number; examples: 200, 2k, 1.5m, 3b" in result.output
    assert "--concurrent: must be 0% to 100%; got 120%" in result.output
    assert "--retention: '5GB' is not a time; examples: 12h, 90d, 4w, 2y" in result.output


@pytest.mark.parametrize("option", ["--prices", "--constants"])
def test_missing_file_is_named_in_the_error(option: str, tmp_path: Path) -> None:
    """The exception contains the path; `main` prints it."""
    result = run(option, str(tmp_path / "nothing"))

    assert result.exit_code != 0
    assert "nothing" in str(result.exception)
