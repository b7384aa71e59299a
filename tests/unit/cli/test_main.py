"""The command line: help, exit codes, and error messages instead of tracebacks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chatserver.cli.main import COMMANDS, cli, main

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_exists_and_has_help(name: str) -> None:
    """`--help` prints these lines without importing the commands, so they are checked here."""
    group = CliRunner().invoke(cli, ["--help"])
    command = CliRunner().invoke(cli, [name, "--help"])

    assert f"{name} " in group.output
    assert command.exit_code == 0
    assert f"Usage: cli {name}" in command.output


def test_unknown_command_exits_with_2() -> None:
    """A typing error gets an error message."""
    result = CliRunner().invoke(cli, ["gatewya"])

    assert result.exit_code == 2
    assert "No such command" in result.output


@pytest.mark.parametrize("command", [["gateway"], ["api"], ["worker", "all"], ["tables", "apply"]])
def test_invalid_settings_are_all_reported_and_exit_with_2(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All errors are listed together, without a traceback."""
    monkeypatch.setenv("CHAT_REDIS_PARTITIONS", "0")
    monkeypatch.setenv("CHAT_GATEWAY_PORT", "many")
    monkeypatch.setenv("CHAT_REDDIS_URL", "redis://127.0.0.1")
    monkeypatch.setattr(sys, "argv", ["chatserver", *command])

    with pytest.raises(SystemExit) as caught:
        main()

    message = capsys.readouterr().err
    assert caught.value.code == 2
    for name in ("redis.partitions", "gateway.port", "CHAT_REDDIS_URL"):
        assert name in message
    assert "Traceback" not in message


def test_gateway_without_a_secret_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no default secret, and the message says how to create one."""
    monkeypatch.delenv("CHAT_AUTH_SECRET", raising=False)
    monkeypatch.setattr(sys, "argv", ["chatserver", "gateway"])

    with pytest.raises(SystemExit) as caught:
        main()

    assert caught.value.code == 2
    assert "openssl rand -hex 32" in capsys.readouterr().err


def test_missing_config_file_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command with a wrong `--config` ends instead of using the default settings."""
    monkeypatch.setenv("CHAT_CONFIG", "")  # so that monkeypatch undoes what the command sets
    monkeypatch.setattr(sys, "argv", ["chatserver", "--config", "/no/such.toml", "api"])

    with pytest.raises(SystemExit) as caught:
        main()

    assert caught.value.code == 2
    assert "/no/such.toml" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "meant"), [("pln", "plan"), ("gatway", "gateway")])
def test_error_for_unknown_command_suggests_a_similar_one(typed: str, meant: str) -> None:
    result = CliRunner().invoke(cli, [typed])

    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in result.output


def test_error_for_unknown_worker_lists_the_known_workers() -> None:
    result = CliRunner().invoke(cli, ["worker", "everything"])

    assert result.exit_code == 2
    assert "Invalid value for 'NAMES...'" in result.output
    assert "persist" in result.output


def test_token_command_prints_only_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output can be used in `$(…)`."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", SECRET)

    result = CliRunner().invoke(cli, ["token", "--user", "alice", "--ttl", "60"])

    assert result.exit_code == 0
    assert result.output.count(".") == 2
    assert result.output.strip().isprintable()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--user", "a b"], "user: must be 1 to 64 characters"),
        (["--user", "alice", "--ttl", "3601"], "--ttl: must be 1 to 3600"),
    ],
)
def test_token_command_with_invalid_option_names_the_option(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message also has the limits."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", SECRET)

    result = CliRunner().invoke(cli, ["token", *options])

    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["chat", "--with", "bob", "--token", "t", "--url", "http://x"], "--url: must begin with"),
        (["audit"], "exactly one of --chat, --all and --continuous is required"),
        (
            ["audit", "--all", "--chat", "c1"],
            "exactly one of --chat, --all and --continuous is required",
        ),
        (["load"], "Missing command"),
        (
            ["load", "direct", "--secret", SECRET, "--report", "no-such-folder/report.html"],
            "--report: no such folder: no-such-folder",
        ),
    ],
)
def test_invalid_usage_names_the_option_and_exits_with_2(
    command: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options and arguments are checked before the command does anything."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", "")  # so that monkeypatch undoes what `load` sets
    monkeypatch.setenv("CHAT_TELEMETRY_LEVEL", "error")
    result = CliRunner().invoke(cli, command)

    assert result.exit_code == 2
    assert message in result.output


def test_load_without_a_secret_names_the_missing_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command creates no secret of its own, because the server would refuse it."""
    monkeypatch.delenv("CHAT_AUTH_SECRET", raising=False)
    monkeypatch.setenv("CHAT_TELEMETRY_LEVEL", "error")  # the command sets it for its process
    monkeypatch.setattr(sys, "argv", ["chatserver", "load", "direct", "--dev-data", str(tmp_path)])

    with pytest.raises(SystemExit) as caught:
        main()

    message = capsys.readouterr().err
    assert caught.value.code == 2
    assert f"{tmp_path / 'settings.env'} does not exist" in message and "--dev-data" in message


@pytest.mark.parametrize("has_dev_folder", [True, False])
def test_command_without_settings_suggests_the_settings_of_a_dev_run(
    has_dev_folder: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error names the settings file of `chatserver dev` if the current folder has one."""
    monkeypatch.delenv("CHAT_AUTH_SECRET", raising=False)
    monkeypatch.setattr(sys, "argv", ["chatserver", "token", "--user", "alice"])
    monkeypatch.chdir(tmp_path)
    if has_dev_folder:
        (tmp_path / ".dev").mkdir()
        (tmp_path / ".dev" / "settings.env").touch()

    with pytest.raises(SystemExit):
        main()

    assert (". .dev/settings.env" in capsys.readouterr().err) is has_dev_folder


def test_version_command_prints_the_version() -> None:
    """The output belongs in bug reports."""
    assert CliRunner().invoke(cli, ["version"]).output.startswith("chatserver 0.")
