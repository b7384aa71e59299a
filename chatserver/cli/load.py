"""`chatserver load`: load tests that check every message."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
import msgspec

from chatserver.cli.process_setup import prepare, run
from chatserver.command_options import with_options_of
from chatserver.config import Settings, check_secret
from chatserver.domain.quantities import format_count
from chatserver.errors import ConfigError
from chatserver.loadtest.plan import (
    SCENARIOS,
    LoadPlan,
    Scenario,
    get_process_unit,
    list_chat_kinds,
    split_users,
)
from chatserver.loadtest.report.thresholds import ScriptThresholds, Thresholds, check_thresholds

if TYPE_CHECKING:
    from chatserver.loadtest.coordinator import Coordinator
    from chatserver.loadtest.remote_workers import RemoteWorker

URL: Final = "ws://127.0.0.1:8081/"  # default gateway of `chatserver dev`
DEV_DATA: Final = Path(".dev")
# Copied from chatserver.dev.data_folder, which cli must not import.
DEV_SETTINGS: Final = "settings.env"
# Maximum duration of a test: its tokens are created before the start and expire after an hour.
DURATION_S_MAX: Final = 2700
SENDS_PER_S_MAX: Final = 45  # maximum sends per user; the server's default limit is 50/s
LISTEN: Final = "0.0.0.0:7780"
CEILING_S: Final = 2.0
LINE_S: Final = 5

_NUMBER = click.FloatRange(min=0, min_open=True)
_CEILING: Final = "ceiling"


@click.group(no_args_is_help=False)
def load() -> None:
    """Load test a server and verify every message.

    Each scenario simulates many users, at a rate that does not depend on the server's speed. Every
    message is checked for loss, duplication and order. Exit code: 0 success, 1 a threshold was not
    met, 2 the test could not start. No options are required if the server runs with `make run`.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadOptions(Thresholds):
    url: Annotated[str, "Address of the gateway, ws:// or wss://."] = URL
    users: Annotated[
        int | None,
        click.IntRange(2, 1_000_000),
        "Number of users; default: depends on the scenario or script.",
    ] = None
    duration: Annotated[
        float | None,
        click.FloatRange(0.5, DURATION_S_MAX),
        "Duration in seconds; default: 30, users / rate for `connect`, or set by the script.",
    ] = None
    processes: Annotated[int, click.IntRange(1, 256), "Number of load generator processes."] = 1
    out: Annotated[Path | None, "Write the results to this file as JSON."] = None
    report: Annotated[Path | None, "Write an HTML page with charts to this file."] = None
    body_bytes: Annotated[int, click.IntRange(80, 16_000), "Size of a message body."] = 200
    connects_per_s: Annotated[float, _NUMBER, "Connections opened per second during setup."] = 200.0
    settle: Annotated[float, _NUMBER, "Seconds to wait for outstanding messages at the end."] = 20.0
    ceiling: Annotated[
        bool,
        "--ceiling/--no-ceiling",
        "First measure the capacity of the load generator (2 s).",
    ] = True
    seed: Annotated[int, "Seed for random actions and times."] = 1
    secret: Annotated[
        str | None,
        "Token secret; prefer CHAT_AUTH_SECRET, because other users can read command lines.",
    ] = None
    metrics: Annotated[
        tuple[str, ...], "URL of a worker's /metrics, to report the backlog; can be repeated."
    ] = ()
    remote_processes: Annotated[
        int,
        click.IntRange(0, 256),
        "Number of processes on other machines to wait for; they run the same command with --join.",
    ] = 0
    listen: Annotated[str, "Address where processes of other machines join."] = LISTEN
    join: Annotated[
        str | None,
        "HOST:PORT of a machine that runs this command with --remote-processes. The processes of "
        "this machine take part in its load test; its options apply.",
    ] = None
    dev_data: Annotated[
        Path,
        click.Path(path_type=Path),
        "Data folder of `chatserver dev`; its settings are used if CHAT_AUTH_SECRET is not set.",
    ] = DEV_DATA


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScenarioOptions(LoadOptions):
    rate: Annotated[
        float | None,
        _NUMBER,
        "Actions per second, over all processes; default: depends on the scenario.",
    ] = None
    small_members: Annotated[
        int | None, click.IntRange(2, 256), "Number of members of each small group."
    ] = None
    large_members: Annotated[
        int | None, click.IntRange(2, 100_000), "Number of members of each large group."
    ] = None

    def adapt(self, scenario: Scenario) -> Scenario:
        """Return the scenario with this rate, and with groups of these sizes."""
        shape = msgspec.structs.replace(
            scenario.shape,
            small_members=self.small_members or scenario.shape.small_members,
            large_members=self.large_members or scenario.shape.large_members,
        )
        rate = self.rate or scenario.rate
        return msgspec.structs.replace(scenario, rate=rate, shape=shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScriptOptions(ScriptThresholds, LoadOptions):
    pass


def _run(scenario: Scenario, options: LoadOptions, *, has_only_ceiling: bool = False) -> None:
    from chatserver.loadtest.coordinator import LoadFailed
    from chatserver.loadtest.remote_workers import parse_host_port

    # The scenario `ceiling` uses a stub server, which accepts any token.
    secret = secrets.token_hex(32) if has_only_ceiling else options.secret
    settings = _load_settings(secret, options.dev_data)
    for name, file in (("out", options.out), ("report", options.report)):
        if file is not None and not file.absolute().parent.is_dir():
            raise click.UsageError(f"--{name}: no such folder: {file.parent}")
    try:
        address = parse_host_port("--listen", options.listen)
        joined = parse_host_port("--join", options.join) if options.join else None
    except ValueError as exc:
        raise click.UsageError(str(exc)) from None
    plans = make_plans(scenario, settings, options)
    for note in _iter_warnings(scenario, plans, options):
        click.echo(f"chatserver load: {note}", err=True)
    try:
        if has_only_ceiling:
            code = run(_measure_ceiling(plans))
        elif joined is not None:
            code = run(_join(scenario, settings, joined, options.processes))
        else:
            code = run(_load(scenario, plans, settings, options, address))
    except LoadFailed as exc:
        click.echo(f"chatserver load: {exc}", err=True)
        code = 2
    sys.exit(code)


def _add_scenario(name: str, description: str) -> None:
    has_only_ceiling = name == _CEILING
    scenario = SCENARIOS["direct" if has_only_ceiling else name]

    @load.command(name, help=description)
    @with_options_of(ScenarioOptions)
    def run_scenario(**fields: Any) -> None:
        options = ScenarioOptions(**fields)
        _run(options.adapt(scenario), options, has_only_ceiling=has_only_ceiling)


for _scenario in SCENARIOS.values():
    _add_scenario(_scenario.name, _scenario.about)
_add_scenario(_CEILING, "Measure only the capacity of the load generator.")


@load.command("run")
@click.argument("script", type=click.Path(path_type=Path))
@with_options_of(ScriptOptions)
def run_script(script: Path, **fields: Any) -> None:
    """Run the users that a Python script defines (docs/load.md).

    All messages are checked as in the built-in scenarios. Exit code 1 also means that a check of
    the script failed, or that it raised an exception.
    """
    from chatserver.loadtest.script_loader import ScriptError, load_script

    try:
        loaded = load_script(script)
    except ScriptError as exc:
        click.echo(f"chatserver load: {exc}", err=True)
        sys.exit(2)
    options = ScriptOptions(**fields)
    scenario = Scenario(
        name=script.stem,
        about=loaded.about,
        users=loaded.users,
        rate=0.0,
        duration_s=loaded.duration_s,
        script=loaded.file,
    )
    if 2 in loaded.file.chats.values() and (options.users or loaded.users) % 2:
        raise click.UsageError("--users: must be even, because CHATS has a chat of 2 members")
    _run(scenario, options)


def _load_settings(secret: str | None, dev_data: Path) -> Settings:
    """Load the settings; without a secret, use the settings of a local `chatserver dev`."""
    os.environ.setdefault("CHAT_TELEMETRY_LEVEL", "error")  # logs would garble the progress line
    if secret is not None:
        os.environ["CHAT_AUTH_SECRET"] = secret
    path = dev_data / DEV_SETTINGS
    if "CHAT_AUTH_SECRET" not in os.environ and "CHAT_CONFIG" not in os.environ and path.exists():
        for name, value in read_exports(path.read_text("utf-8")).items():
            os.environ.setdefault(name, value)
    settings = prepare("load")
    if not settings.auth.secret.get_secret_value() and not path.exists():
        raise ConfigError(
            f"{path} does not exist; run this where `chatserver dev` was started, set "
            "--dev-data to its data folder, or set CHAT_AUTH_SECRET to the server's secret"
        )
    check_secret(settings)
    return settings


def read_exports(text: str) -> dict[str, str]:
    """Parse variables that a shell would export: ``export NAME=value``, quoted or not."""
    words = (word.partition("=") for word in shlex.split(text, comments=True))
    return {name: value for name, is_assigned, value in words if is_assigned}


def make_plans(scenario: Scenario, settings: Settings, options: LoadOptions) -> list[LoadPlan]:
    """Return one plan per process; `split_users` may use fewer processes than requested."""
    users, rate = options.users or scenario.users, scenario.rate
    duration_s = options.duration or (users / rate if scenario.mix.connect else scenario.duration_s)
    run_id, unit = secrets.token_hex(4), 2
    if scenario.mix.connect == 0:
        unit = get_process_unit(list_chat_kinds(scenario.shape, scenario.script))
    return [
        LoadPlan(
            run=run_id,
            url=options.url,
            secret=settings.auth.secret.get_secret_value(),
            audience=settings.auth.audience,
            issuer=settings.auth.issuer,
            token_s=settings.auth.lifetime_s_max,
            first_user=first + 1,
            users=count,
            rate=rate * count / users,
            duration_s=duration_s,
            settle_s=options.settle,
            body_bytes=options.body_bytes,
            seed=options.seed,
            connects_per_s=options.connects_per_s * count / users,
            shape=scenario.shape,
            mix=scenario.mix,
            storm_s=scenario.storm_s,
            preload=scenario.preload,
            script=scenario.script,
        )
        for first, count in split_users(users, options.processes + options.remote_processes, unit)
    ]


def _iter_warnings(
    scenario: Scenario, plans: list[LoadPlan], options: LoadOptions
) -> Iterator[str]:
    count = options.processes + options.remote_processes
    if options.remote_processes and len(plans) < count:
        raise click.UsageError(
            f"--users: too few for {count} processes, because all members of a group must be in "
            "one process"
        )
    from chatserver.loadtest.server_monitor import is_loopback
    from chatserver.loadtest.wire import parse_address

    if options.remote_processes and is_loopback(parse_address(options.url).host):
        yield f"processes of other machines cannot reach {options.url}; set --url"
    if len(plans) < options.processes:
        enough = format_count(len(plans), "process", "processes")
        yield f"starting {enough} only: all members of a group must be in one process"
    users, rate = sum(plan.users for plan in plans), sum(plan.rate for plan in plans)
    sends_per_s = rate * scenario.mix.send / users
    if sends_per_s > SENDS_PER_S_MAX:
        needed = int(rate * scenario.mix.send / SENDS_PER_S_MAX) + 1
        yield (
            f"{sends_per_s:.0f} messages per second from each user; by default the server refuses "
            f"more than 50 (CHAT_LIMITS_SENDS). Use --users {needed}"
        )


async def _load(
    scenario: Scenario,
    plans: list[LoadPlan],
    settings: Settings,
    options: LoadOptions,
    listen: tuple[str, int],
) -> int:
    from chatserver.loadtest.connection import probe_gateway
    from chatserver.loadtest.coordinator import Coordinator, LoadFailed
    from chatserver.loadtest.generator_limits import measure_ceiling
    from chatserver.loadtest.report import html_page, result, summary
    from chatserver.loadtest.server_monitor import open_monitor
    from chatserver.loadtest.wire import BadHandshake, parse_address

    before = result.get_load_average()
    address = parse_address(options.url)
    try:
        await probe_gateway(options.url)
    except (OSError, TimeoutError, BadHandshake) as exc:
        reason = str(exc) or "timed out"
        raise LoadFailed(
            f"no gateway at {options.url}: {reason}; start one with `chatserver dev`, or set --url"
        ) from exc
    local = plans[: len(plans) - options.remote_processes]
    ceiling = await measure_ceiling(local, CEILING_S) if options.ceiling else None
    if ceiling is not None:
        click.echo(summary.format_ceiling(ceiling), err=True)
    # Measure Redis only if its URL is set: the tested server possibly does not use the default URL.
    is_set = "url" in settings.redis.model_fields_set
    redis = settings.redis if is_set else None
    async with (
        open_monitor(address, redis, options.metrics) as monitor,
        _accept_remotes(scenario, settings, options, listen) as remotes,
    ):
        running = Coordinator(plans, monitor, remotes)
        click.echo(
            f"{scenario.name}: {sum(plan.users for plan in plans):,} users connect", err=True
        )
        with _open_progress(running) as on_second, _stop_on_signal(running):
            await running.run(on_second)
        report = result.build(
            scenario,
            running,
            pids=monitor.pids,
            has_redis=monitor.has_redis,
            ceiling=ceiling,
            load_average=before,
        )
    report["verdict"] = check_thresholds(report, options)
    for line in summary.iter_lines(report):
        click.echo(line)
    for file, render in ((options.out, result.to_json), (options.report, html_page.render)):
        if file is not None:
            try:
                file.write_text(render(report), "utf-8")
            except OSError as exc:
                raise click.FileError(str(file), exc.strerror) from None
    return 0 if report["verdict"]["is_ok"] else 1


@contextlib.asynccontextmanager
async def _accept_remotes(
    scenario: Scenario, settings: Settings, options: LoadOptions, listen: tuple[str, int]
) -> AsyncIterator[Sequence[RemoteWorker]]:
    """Wait until the processes of other machines have joined, if there are to be any."""
    from chatserver.loadtest.remote_workers import accept_workers

    count = options.remote_processes
    if not count:
        yield ()
        return
    processes = format_count(count, "process", "processes")
    click.echo(f"waiting for {processes} of other machines at {options.listen}", err=True)
    secret = settings.auth.secret.get_secret_value()
    async with accept_workers(listen, secret, scenario, count) as remotes:
        yield remotes


async def _join(
    scenario: Scenario, settings: Settings, address: tuple[str, int], processes: int
) -> int:
    from chatserver.loadtest.coordinator import LoadFailed
    from chatserver.loadtest.remote_workers import JoiningProcess

    process = JoiningProcess(address, settings.auth.secret.get_secret_value(), scenario)

    def report() -> None:
        click.echo("a process has joined; the report is on the other machine", err=True)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(processes):
                tasks.create_task(process.run(report), name="joined process")
    except* LoadFailed as group:
        raise LoadFailed(str(group.exceptions[0])) from group
    return 0


async def _measure_ceiling(plans: list[LoadPlan]) -> int:
    from chatserver.loadtest.generator_limits import measure_ceiling
    from chatserver.loadtest.report import summary

    click.echo(summary.format_ceiling(await measure_ceiling(plans, 2 * CEILING_S)))
    return 0


@contextlib.contextmanager
def _stop_on_signal(running: Coordinator) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, running.stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _open_progress(running: Coordinator) -> Iterator[Any]:
    """Show the progress: one updated line in a terminal, otherwise periodic lines."""
    from chatserver.loadtest.report.summary import format_progress

    if not sys.stderr.isatty():

        def print_line(number: int) -> None:
            if number % LINE_S == 0:
                click.echo(format_progress(running.totals, number), err=True)

        yield print_line
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda number: live.update(format_progress(running.totals, number), refresh=True)
