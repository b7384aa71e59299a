"""CPU, Redis commands and DynamoDB calls of processes with nothing to do.

    python -m tests.benchmarks.idle_cpu [--seconds 120] [--settle 30] [--partitions 1]
        [--out F.json]

Starts Redis, DynamoDB, S3, a gateway, the API and a process with all workers, with the settings of
`chatserver dev`, and waits. No client connects. CPU is user and system time of each process, as a
share of one core. Wake-ups are voluntary context switches of its main thread. Commands are those
that Redis executes, including those inside scripts.
"""

from __future__ import annotations

import collections
import time
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import click
import psutil
from prometheus_client.parser import text_string_to_metric_families

from chatserver.dev.ports import Ports
from chatserver.dev.process_plan import ProcessPlan
from chatserver.dev.servers import HOST, Server
from tests.benchmarks.support import harness
from tests.benchmarks.support.harness import Bench, Figures, benchmark
from tests.benchmarks.support.measurements import get_pid, read_redis_commands
from tests.support.servers.processes import free_port
from tests.support.stack import Stack

COMMANDS_SHOWN = 8


def dev_settings(folder: Path, s3_port: int, partitions: int) -> dict[str, str]:
    """Return the settings of `chatserver dev` that the stack does not set."""
    page, gateway, redis, dynamodb = (free_port() for _ in range(4))
    ports = Ports(page=page, gateway=gateway, redis=redis, dynamodb=dynamodb, s3=s3_port)
    plan = ProcessPlan(folder, ports, secret="0" * 64)
    own = ("CHAT_REDIS_", "CHAT_WARM_", "CHAT_AUTH_", "CHAT_GATEWAY_", "CHAT_TELEMETRY_")
    shared = {name: text for name, text in plan.settings().items() if not name.startswith(own)}
    return {**shared, "CHAT_REDIS_PARTITIONS": str(partitions)}


class Usage(NamedTuple):
    """Usage of a process since its start: CPU time, and how often its main thread woke up."""

    cpu_s: float
    wake_ups: int


def usage_of(server: Server) -> Usage:
    """Return the usage of a process."""
    process = psutil.Process(get_pid(server))
    times = process.cpu_times()
    return Usage(times.user + times.system, process.num_ctx_switches().voluntary)


def count_commands(stack: Stack) -> collections.Counter[str]:
    """Return how often Redis executed each command."""
    stats = read_redis_commands(stack.redis_url)
    return collections.Counter({name: int(each["calls"]) for name, each in stats.items()})


def count_dynamodb_calls(port: int) -> collections.Counter[str]:
    """Return a process's DynamoDB calls by feature and operation."""
    with urlopen(f"http://{HOST}:{port}/metrics", timeout=20) as reply:
        text = reply.read().decode()
    counts: collections.Counter[str] = collections.Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "chatserver_dynamodb_calls_total":
                name = f"{sample.labels['feature']} {sample.labels['operation']}"
                counts[name] += int(sample.value)
    return counts


def measure(bench: Bench, stack: Stack, seconds: float, settle: float) -> Figures:
    """Start the processes, wait until they are idle, and return the rates per second."""
    ports = {name: free_port() for name in ("worker all", "gateway", "api")}
    metrics = {name: {"CHAT_TELEMETRY_METRICS_PORT": str(port)} for name, port in ports.items()}
    servers = {
        "worker all": stack.start_worker("all", **metrics["worker all"]),
        "gateway": bench.start(stack.add_gateway(**metrics["gateway"]).launch),
        "api": bench.start(stack.add_api(**metrics["api"]).launch),
        "redis": stack.redis,
        "dynamodb": stack.dynamodb,
    }
    time.sleep(settle)

    def count_calls() -> collections.Counter[str]:
        return sum(map(count_dynamodb_calls, ports.values()), collections.Counter())

    calls, commands = count_calls(), count_commands(stack)
    before = {name: usage_of(server) for name, server in servers.items()}
    began = time.monotonic()
    time.sleep(seconds)
    span_s = time.monotonic() - began
    after = {name: usage_of(server) for name, server in servers.items()}
    commands, calls = count_commands(stack) - commands, count_calls() - calls

    def rates(counts: collections.Counter[str]) -> dict[str, float]:
        return {
            name: round(count / span_s, 2) for name, count in counts.most_common(COMMANDS_SHOWN)
        }

    return {
        "cpu_percent": {
            name: round(100 * (now.cpu_s - before[name].cpu_s) / span_s, 2)
            for name, now in after.items()
        },
        "wake_ups_per_s": {
            name: round((now.wake_ups - before[name].wake_ups) / span_s, 1)
            for name, now in after.items()
        },
        "redis_commands_per_s_in_all": round(commands.total() / span_s, 1),
        "redis_commands_per_s": rates(commands),
        "dynamodb_calls_per_s_in_all": round(calls.total() / span_s, 2),
        "dynamodb_calls_per_s": rates(calls),
    }


@benchmark(
    click.option("--seconds", default=120.0, show_default=True),
    click.option("--settle", default=30.0, show_default=True, help="Seconds before that."),
    click.option("--partitions", default=1, show_default=True, type=click.IntRange(1, 1024)),
)
def main(bench: Bench, seconds: float, settle: float, partitions: int) -> Figures:
    settings = dev_settings(bench.folder, bench.start_s3().port, partitions)
    stack = Stack(bench.folder, "everysec", {**settings, **harness.SETTINGS})
    bench.on_exit(stack.stop)
    stack.start_servers()
    return measure(bench, stack, seconds, settle)


if __name__ == "__main__":
    main()
