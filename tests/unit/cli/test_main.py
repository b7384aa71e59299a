"""The command line: quick help, honest exit codes, sentences instead of tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chatserver.cli.main import COMMANDS, cli, main
from chatserver.cli.process_setup import require_redis
from chatserver.config import Redis
from chatserver.errors import ConfigError

SECRET = "0123456789abcdef0123456789abcdef"
HEAVY = ("redis", "litestar", "uvicorn", "aioboto3", "pydantic", "structlog", "rich", "jwt")


def test_help_imports_nothing_heavy() -> None:
    """`chatserver --help` stays instant: no command's module is loaded for it."""
    program = (
        "import sys\n"
        "from chatserver.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_exists_and_explains_itself(name: str) -> None:
    """`--help` prints these lines without importing the commands, so they are checked here."""
    group = CliRunner().invoke(cli, ["--help"])
    command = CliRunner().invoke(cli, [name, "--help"])

    assert f"{name} " in group.output
    assert command.exit_code == 0
    assert f"Usage: cli {name}" in command.output


def test_unknown_command_exits_with_2() -> None:
    """A typing error is reported as one."""
    result = CliRunner().invoke(cli, ["gatewya"])

    assert result.exit_code == 2
    assert "No such command" in result.output


@pytest.mark.parametrize("command", [["gateway"], ["api"], ["worker", "all"], ["tables", "apply"]])
def test_wrong_settings_are_told_all_at_once_and_exit_with_2(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every problem in one go, without a traceback."""
    monkeypatch.setenv("CHAT_REDIS_PARTITIONS", "0")
    monkeypatch.setenv("CHAT_GATEWAY_PORT", "many")
    monkeypatch.setenv("CHAT_REDDIS_URL", "redis://127.0.0.1")
    monkeypatch.setattr(sys, "argv", ["chatserver", *command])

    with pytest.raises(SystemExit) as caught:
        main()

    said = capsys.readouterr().err
    assert caught.value.code == 2
    for name in ("redis.partitions", "gateway.port", "CHAT_REDDIS_URL"):
        assert name in said
    assert "Traceback" not in said


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


def test_config_file_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--config` with a wrong path does not start with defaults."""
    monkeypatch.setenv("CHAT_CONFIG", "")  # so that what the command sets is taken back
    monkeypatch.setattr(sys, "argv", ["chatserver", "--config", "/no/such.toml", "api"])

    with pytest.raises(SystemExit) as caught:
        main()

    assert caught.value.code == 2
    assert "/no/such.toml" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1", "127.0.0.1:6379", "redis://127.0.0.1:x/0"])
def test_address_that_is_no_redis_url_is_refused(url: str) -> None:
    """A wrong address is a wrong setting, not a missing server."""
    with pytest.raises(ConfigError, match=r"redis\.url"):
        require_redis(Redis(url=url))


def test_worker_of_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """The message lists the known names."""
    result = CliRunner().invoke(cli, ["worker", "everything"])

    assert result.exit_code == 2
    assert "persist" in result.output


def test_token_command_prints_a_token_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can stand in `$(…)`."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", SECRET)

    result = CliRunner().invoke(cli, ["token", "--user", "alice", "--ttl", "60"])

    assert result.exit_code == 0
    assert result.output.count(".") == 2
    assert result.output.strip().isprintable()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user", "a b"], "user: must be 1 to 64 characters"),
        (["--user", "alice", "--ttl", "3601"], "--ttl: must be 1 to 3600"),
    ],
)
def test_token_command_with_a_wrong_option_says_which(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the bounds."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", SECRET)

    result = CliRunner().invoke(cli, ["token", *options])

    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("command", "said"),
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
        (["worker", "nope"], "Invalid value for 'NAMES...'"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    command: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of the option or the argument, before anything is done."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", "")  # so that what `load` sets is taken back
    monkeypatch.setenv("CHAT_TELEMETRY_LEVEL", "error")
    result = CliRunner().invoke(cli, command)

    assert result.exit_code == 2
    assert said in result.output


def test_load_without_a_secret_says_where_it_looked_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A secret of one's own making would only be refused by the server."""
    monkeypatch.delenv("CHAT_AUTH_SECRET", raising=False)
    monkeypatch.setenv("CHAT_TELEMETRY_LEVEL", "error")  # the command sets it for its process
    monkeypatch.setattr(sys, "argv", ["chatserver", "load", "direct", "--dev-data", str(tmp_path)])

    with pytest.raises(SystemExit) as caught:
        main()

    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert f"{tmp_path / 'settings.env'} does not exist" in said and "--dev-data" in said


@pytest.mark.parametrize("is_beside", [True, False])
def test_command_without_settings_is_pointed_to_those_of_a_dev_run(
    is_beside: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If there is one in this folder."""
    monkeypatch.delenv("CHAT_AUTH_SECRET", raising=False)
    monkeypatch.setattr(sys, "argv", ["chatserver", "token", "--user", "alice"])
    monkeypatch.chdir(tmp_path)
    if is_beside:
        (tmp_path / ".dev").mkdir()
        (tmp_path / ".dev" / "settings.env").touch()

    with pytest.raises(SystemExit):
        main()

    assert (". .dev/settings.env" in capsys.readouterr().err) is is_beside


def test_version_command_prints_the_version() -> None:
    """For bug reports."""
    assert CliRunner().invoke(cli, ["version"]).output.startswith("chatserver 0.")
