"""The `chatserver` command: its subcommands, and error messages for failed starts.

Exit codes: 0 success, 1 a required service is unavailable, 2 a setting or an option is wrong.
"""

from __future__ import annotations

import difflib
import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from chatserver.errors import ConfigError, Unavailable
from chatserver.extras import describe_missing_module
from chatserver.features.registry import list_features, load

DEV_SETTINGS = ".dev/settings.env"  # where `chatserver dev` writes settings by default

# Import path and `--help` line of each command. The help lines are here so that `--help` imports no
# command. `dev` is referenced only by its path: cli and dev must not import each other.
COMMANDS = {
    "dev": ("chatserver.dev.command:dev", "Run all servers on this machine, for development."),
    "gateway": ("chatserver.cli.gateway:gateway", "Serve WebSocket clients."),
    "api": ("chatserver.cli.api:api", "Serve the web client and the HTTP API."),
    "worker": ("chatserver.cli.worker:worker", "Run background workers."),
    "doctor": (
        "chatserver.operations.doctor.cli:doctor",
        "Check settings and stores, and print how to fix problems.",
    ),
    "selftest": (
        "chatserver.operations.selftest.cli:selftest",
        "Test the server's guarantees on the configured stores, or on AWS.",
    ),
    "tables": ("chatserver.cli.tables:tables", "Create the DynamoDB tables and the S3 bucket."),
    "migrate": ("chatserver.cli.migrate:migrate", "Migrate the tables to the newest schema."),
    "audit": (
        "chatserver.operations.audit.cli:audit",
        "Compare Redis, DynamoDB and S3, and report inconsistencies.",
    ),
    "tenants": (
        "chatserver.operations.tenants.cli:tenants",
        "List, measure, block, export, delete, audit and restore tenants.",
    ),
    "restore": ("chatserver.cli.restore:restore", "Restore archived messages to DynamoDB."),
    "shards": ("chatserver.cli.shards:shards", "Shard a chat before a planned event."),
    "dead-letters": (
        "chatserver.cli.dead_letters:dead_letters",
        "List and replay messages that DynamoDB rejected.",
    ),
    "trace": (
        "chatserver.operations.trace.cli:trace",
        "Trace a message: committed, delivered, persisted, archived.",
    ),
    "cost": (
        "chatserver.operations.cost.cli:cost",
        "Report DynamoDB usage and stored data, with costs.",
    ),
    "load": ("chatserver.cli.load:load", "Load test a server and verify every message."),
    "plan": (
        "chatserver.operations.capacity.cli:plan",
        "Estimate servers and costs for a number of users.",
    ),
    "encryption": (
        "chatserver.cli.encryption:encryption",
        "Create, rotate and delete the keys of message encryption.",
    ),
    "keys": (
        "chatserver.cli.api_keys:keys",
        "Create and revoke API keys for the host application.",
    ),
    "token": ("chatserver.cli.token:token", "Create a token for a user."),
    "chat": ("chatserver.cli.chat:chat", "Chat in the terminal."),
    **{name: line for feature in list_features() for name, line in feature.commands.items()},
    "version": ("chatserver.cli.version:version", "Print the version."),
}


class LazyGroup(click.Group):
    """A click group that imports a command's module only when the command is invoked.

    `lazy_commands` maps names to import paths and help lines.
    """

    def __init__(self, *, lazy_commands: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._lazy_commands = lazy_commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of `lazy_commands`."""
        return list(self._lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy_commands:
            return None
        command = load(self._lazy_commands[cmd_name][0])
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; suggest one if there is none."""
        name = args[0]
        if name not in self._lazy_commands and not name.startswith("-"):
            similar = difflib.get_close_matches(name, self._lazy_commands, n=1)
            hint = f" Did you mean {similar[0]!r}?" if similar else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._lazy_commands.items()])


@click.group(
    cls=LazyGroup, lazy_commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="TOML file of settings; environment variables CHAT_<SECTION>_<NAME> override it.",
)
def cli(config: str | None) -> None:
    """A real-time chat server: WebSocket gateway, Redis hot tier, DynamoDB history."""
    if config is not None:
        os.environ["CHAT_CONFIG"] = config  # child processes read the variable, too


def main() -> None:
    """Run a command; if it cannot start, print the reasons without a traceback."""
    # With the default threshold of 700, garbage collection takes an eighth of the CPU time at
    # startup, although imports create few reference cycles.
    gc.set_threshold(20_000)
    try:
        cli(prog_name="chatserver")
    except ConfigError as exc:
        for problem in exc.problems:
            click.echo(f"chatserver: {problem}", err=True)
        _print_dev_hint()
        sys.exit(2)
    except ModuleNotFoundError as exc:
        what = " ".join(["chatserver", *sys.argv[1:2]])
        click.echo(f"{what}: {describe_missing_module(exc)}", err=True)
        sys.exit(2)
    except Unavailable as exc:
        click.echo(f"chatserver: {exc.message}", err=True)
        _print_dev_hint()
        sys.exit(1)


def _print_dev_hint() -> None:
    """Print how to load the settings if the current directory has a `chatserver dev` folder."""
    has_settings = any(name in os.environ for name in ("CHAT_AUTH_SECRET", "CHAT_CONFIG"))
    if not has_settings and "dev" not in sys.argv[1:2] and Path(DEV_SETTINGS).exists():
        click.echo(
            f"chatserver: to use the settings of `chatserver dev`, run: . {DEV_SETTINGS}", err=True
        )


if __name__ == "__main__":
    main()
