"""The `chatserver` command: which commands there are, and how a failed start is told.

Exit codes: 0 it was done, 1 something needed is not there, 2 a setting or an option is wrong.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import click

from chatserver.errors import ConfigError, Unavailable

DEV_SETTINGS = ".dev/settings.env"  # of chatserver.dev.folder, in its default place

# Where each command is, and its line in `--help`. Told here, so that `--help` imports none of
# them. `dev` is named by text only: cli and dev do not know each other.
COMMANDS = {
    "dev": ("chatserver.dev.command:dev", "Run everything on this machine, for development."),
    "gateway": ("chatserver.cli.gateway:gateway", "Serve WebSocket clients."),
    "api": ("chatserver.cli.api:api", "Serve the web client and the HTTP API."),
    "worker": ("chatserver.cli.worker:worker", "Run background workers."),
    "doctor": (
        "chatserver.cli.doctor:doctor",
        "Say what is wrong with settings and stores, and how to mend it.",
    ),
    "tables": ("chatserver.cli.tables:tables", "Create the DynamoDB tables."),
    "migrate": ("chatserver.cli.migrate:migrate", "Bring the tables to the newest schema."),
    "audit": ("chatserver.cli.audit:audit", "Compare what the tiers have; find what is wrong."),
    "restore": ("chatserver.cli.restore:restore", "Bring archived messages back to DynamoDB."),
    "webhooks": ("chatserver.cli.webhooks:webhooks", "List and replay undelivered events."),
    "dead-letters": (
        "chatserver.cli.deadletters:dead_letters",
        "List and replay messages that DynamoDB would not take.",
    ),
    "trace": (
        "chatserver.cli.trace:trace",
        "Tell where a message is: committed, delivered, persisted, archived.",
    ),
    "cost": ("chatserver.cli.cost:cost", "Report what DynamoDB took and what is kept where."),
    "load": ("chatserver.cli.load:load", "Load a server and check every message."),
    "plan": ("chatserver.cli.plan:plan", "Say what a number of users needs, and what it costs."),
    "vapid": ("chatserver.cli.vapid:vapid", "Make the key pair of pushes to browsers."),
    "keys": ("chatserver.cli.keys:keys", "Make and revoke API keys of the host application."),
    "companion": (
        "chatserver.cli.companion:companion",
        "Make, list, update and delete AI companions.",
    ),
    "token": ("chatserver.cli.token:token", "Make a token for a user."),
    "chat": ("chatserver.cli.chat:chat", "Chat in the terminal."),
    "version": ("chatserver.cli.version:version", "Print the version."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which one needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="TOML file of settings; environment variables CHAT_<SECTION>_<NAME> win over it.",
)
def cli(config: str | None) -> None:
    """A real-time chat server: WebSocket gateway, Redis hot tier, DynamoDB history."""
    if config is not None:
        os.environ["CHAT_CONFIG"] = config  # so that child processes read it too


def main() -> None:
    """Run a command; tell in sentences, without a traceback, why it could not start."""
    try:
        cli(prog_name="chatserver")
    except ConfigError as exc:
        for problem in exc.problems:
            click.echo(f"chatserver: {problem}", err=True)
        _point_to_dev()
        sys.exit(2)
    except Unavailable as exc:
        click.echo(f"chatserver: {exc.message}", err=True)
        _point_to_dev()
        sys.exit(1)


def _point_to_dev() -> None:
    """Tell whoever stands beside a `chatserver dev` how to get its settings."""
    has_settings = any(name in os.environ for name in ("CHAT_AUTH_SECRET", "CHAT_CONFIG"))
    if not has_settings and "dev" not in sys.argv[1:2] and Path(DEV_SETTINGS).exists():
        click.echo(f"chatserver: the settings of `chatserver dev`: . {DEV_SETTINGS}", err=True)


if __name__ == "__main__":
    main()
