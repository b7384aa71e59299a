"""`chatserver plan`: estimate the capacity and cost of each tier for a number of users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click

from chatserver.command_options import handle_errors, with_options, with_options_of
from chatserver.domain.quantities import format_bytes, format_quantity
from chatserver.errors import BadRequest
from chatserver.operations.capacity.plan_inputs import INPUTS, PlanInputs, parse_inputs

if TYPE_CHECKING:
    from rich.table import Table

    from chatserver.operations.capacity.formula_evaluation import EvaluatedRow
    from chatserver.operations.capacity.plan import CapacityPlan

WIDTH_OF_FILES = 300
_TITLES = {
    "load": "Load",
    "gateways": "Gateways",
    "redis": "Redis",
    "workers": "Workers",
    "dynamodb": "DynamoDB",
    "s3": "S3",
    "network": "Network",
    "total": "Total per month",
}


@click.command()
@with_options_of(PlanInputs)
@handle_errors(usage=(BadRequest,))
@with_options
def plan(
    *,
    removal: Annotated[
        Literal["worker", "ttl"],
        "CHAT_ARCHIVE_REMOVAL: how archived messages are deleted from DynamoDB.",
    ] = "worker",
    prices_file: Annotated[
        Path | None,
        "--prices",
        "--region-prices",
        "TOML file of prices that override the built-in prices (docs/cost.md).",
    ] = None,
    constants_file: Annotated[
        Path | None,
        "--constants",
        "Result file from `chatserver load --out`; its constants override the built-in ones.",
    ] = None,
    explain: Annotated[bool, "Print each formula with its numbers and constants."] = False,
    is_json: Annotated[bool, "Print JSON."] = False,
    **options: str,
) -> None:
    """Estimate the capacity that each tier needs for a number of users, and the monthly cost.

    Examples of values: 10m (10 million users), 5%, 2KB, 90d. The command contacts no server and
    needs no settings. docs/capacity.md lists what is included.
    """
    from chatserver.operations.capacity.plan import load_constants, make_plan
    from chatserver.operations.cost.prices import load_prices

    inputs = parse_inputs(PlanInputs(**options))
    constants, overridden = load_constants(constants_file)
    capacity_plan = make_plan(
        inputs,
        "ttl" if removal == "ttl" else "worker",
        constants,
        overridden,
        load_prices(prices_file),
    )
    if is_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(capacity_plan), indent=1).decode())
    elif explain:
        _explain(capacity_plan)
    else:
        _print(capacity_plan)


def format_line(line: EvaluatedRow) -> str:
    if line.unit == "USD":
        return f"{line.value:,.2f} USD" if line.value >= 0.01 else f"{line.value:.6f} USD"
    if line.unit.startswith("B"):
        return format_bytes(line.value) + line.unit[1:]
    digits = 0 if line.value >= 100 or line.value == int(line.value) else 2
    text = f"{line.value:,.{digits}f}"
    if not line.value or line.value >= 0.01:
        return f"{text}{'' if line.unit == '/s' else ' '}{line.unit}".strip()
    return f"{line.value:.3g} {line.unit}".strip()


def _print(capacity_plan: CapacityPlan) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:  # Do not wrap lines in a file or a pipe.
        console.width = WIDTH_OF_FILES
    console.print(_format_inputs(capacity_plan), markup=False)
    for tier, title in _TITLES.items():
        lines = [line for line in capacity_plan.lines if line.tier == tier]
        rows = [(line.label, format_line(line), f"{line.name} = {line.formula}") for line in lines]
        console.print(_make_table(title, rows))
    console.print(_make_table("Measured", _iter_constants(capacity_plan)))
    console.print(
        f"Redis nodes: {capacity_plan.redis_node}. Use --explain to print the formulas.",
        markup=False,
    )
    _warn(capacity_plan)


def _format_inputs(capacity_plan: CapacityPlan) -> str:
    words = [
        f"{name}={format_quantity(capacity_plan.inputs[name], quantity.kind)}"
        for name, quantity in INPUTS.items()
    ]
    from_file = (
        f"; from your file: {', '.join(capacity_plan.from_results)}"
        if capacity_plan.from_results
        else ""
    )
    return (
        f"{' '.join(words)} removal={capacity_plan.removal}\n"
        f"prices of {capacity_plan.prices_region} as of {capacity_plan.prices_as_of}{from_file}"
    )


def _make_table(title: str, rows: Iterable[tuple[str, str, str]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _iter_constants(capacity_plan: CapacityPlan) -> Iterator[tuple[str, str, str]]:
    for name, constant in sorted(capacity_plan.constants.items()):
        whose = "your file: " if name in capacity_plan.from_results else ""
        yield name, _format_constant(constant.value, constant.unit), f"{whose}{constant.how}"


def _format_constant(value: float | None, unit: str) -> str:
    """Format a constant without an exponent, for comparison with measurements."""
    if value is None:
        return "-"
    text = f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"
    return f"{text} {unit[:-1] if value == 1 and unit.endswith('units') else unit}".strip()


def _explain(capacity_plan: CapacityPlan) -> None:
    click.echo(_format_inputs(capacity_plan))
    for tier, title in _TITLES.items():
        click.echo(f"\n{title}")
        for line in capacity_plan.lines:
            if line.tier != tier:
                continue
            click.echo(f"  {line.label}: {format_line(line)}")
            click.echo(f"    {line.name} = {line.formula}")
            click.echo(f"    = {line.numbers}")
            for name in line.constants:
                constant = capacity_plan.constants[name]
                whose = " (your file)" if name in capacity_plan.from_results else ""
                click.echo(
                    f"      {name}: {constant.value:g} {constant.unit}{whose}; {constant.how}"
                )
    _warn(capacity_plan)


def _warn(capacity_plan: CapacityPlan) -> None:
    for warning in capacity_plan.warnings:
        click.echo(f"\n! {warning}")
