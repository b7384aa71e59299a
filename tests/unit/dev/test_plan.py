"""The plan: which processes run, on which ports, with which settings."""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatserver.config import load_settings
from chatserver.dev import plan as plan_module
from chatserver.dev.plan import DEMO_USERS, Plan, Ports, fallback_notes, require_aws_limits
from chatserver.errors import ConfigError
from tests.support.servers.processes import free_port

PORTS = Ports(page=31080, gateway=31081, redis=31082, dynamodb=31083, s3=31084)


def plan(folder: Path) -> Plan:
    return Plan(folder, PORTS, secret="0123456789abcdef" * 4)


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_busy_port_is_named_with_its_use_and_its_flag(busy_port: int) -> None:
    """One sentence says what is wrong and what to do."""
    gateway, redis, dynamodb, s3 = (free_port() for _ in range(4))
    with pytest.raises(ConfigError) as caught:
        Ports(page=busy_port, gateway=gateway, redis=redis, dynamodb=dynamodb, s3=s3).check()

    assert caught.value.problems == [
        f"port {busy_port} (page) is in use: stop the process that uses it, or "
        "choose another port with --port"
    ]


def test_limits_of_aws_are_between_our_processes_and_the_server(tmp_path: Path) -> None:
    """The known port is that of the proxy, which starts after the server."""
    made = dataclasses.replace(plan(tmp_path), local_dynamodb_port=31090)

    servers = {launch.name: launch for launch in made.servers()}

    assert [*servers] == ["redis", "dynamodb", "limits", "s3"]
    assert servers["dynamodb"].port == 31090
    assert servers["limits"].port == PORTS.dynamodb
    assert "31090" in servers["limits"].argv
    assert made.settings()["CHAT_WARM_ENDPOINT"].endswith(f":{PORTS.dynamodb}")


def test_limits_of_aws_need_the_server_from_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    """ministack verifies signatures, which requests through the proxy no longer match."""
    monkeypatch.setattr(plan_module, "has_binary", lambda _: False)
    with pytest.raises(ConfigError, match="install npm"):
        require_aws_limits()


def test_one_port_for_two_things_is_refused() -> None:
    """A port that is given twice is reported before anything starts."""
    with pytest.raises(ConfigError, match=r"is used twice \(page, s3\): change --s3-port"):
        Ports(page=31080, gateway=31081, redis=31082, dynamodb=31083, s3=31080).check()


def test_every_process_is_told_settings_that_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment that we set is what the settings read."""
    made = plan(tmp_path)

    for launch in (made.gateway(), made.api(), made.worker(), made.seed()):
        with monkeypatch.context() as patch:
            for name, value in launch.env.items():
                patch.setenv(name, value)
            settings = load_settings()
            assert settings.redis.url == "redis://127.0.0.1:31082/0"
            assert settings.warm.endpoint == "http://127.0.0.1:31083"
            assert settings.telemetry.format == "console"


def test_only_the_api_knows_demo_users(tmp_path: Path) -> None:
    """One-click login exists in one process only, and only in `dev`."""
    made = plan(tmp_path)

    assert json.loads(made.api().env["CHAT_API_DEMO_USERS"]) == list(DEMO_USERS)
    for launch in (made.gateway(), made.worker(), made.seed()):
        assert "CHAT_API_DEMO_USERS" not in launch.env
        assert "CHAT_AUTH_ADMINS" not in launch.env
    assert json.loads(made.api().env["CHAT_AUTH_ADMINS"]) == ["alice"]


def test_several_gateways_are_one_launch_that_is_ready_when_all_are(tmp_path: Path) -> None:
    """A supervisor runs them; the first that answers does not stand for the others."""
    one, three = plan(tmp_path).gateway(), Plan(tmp_path, PORTS, "s", gateways=3).gateway()

    assert one.argv[-2:] == ["--processes", "1"] and not one.ready_line
    assert three.argv[-2:] == ["--processes", "3"] and three.ready_line == "gateways.ready"


def test_gateway_lets_in_the_page_under_both_of_its_names_and_no_other(tmp_path: Path) -> None:
    """The page may be opened as 127.0.0.1 or localhost."""
    origins = json.loads(plan(tmp_path).gateway().env["CHAT_GATEWAY_ORIGINS"])

    assert origins == ["http://127.0.0.1:31080", "http://localhost:31080"]


def test_secret_is_in_no_command_line(tmp_path: Path) -> None:
    """Anybody on the machine can list the processes."""
    made = plan(tmp_path)

    for launch in (made.gateway(), made.api(), made.worker(), made.seed()):
        assert not any(made.secret in word for word in launch.argv)


def test_without_npm_the_fallback_and_its_price_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user knows that the fallback is slower, and what a crash costs."""
    monkeypatch.setattr(plan_module, "has_binary", lambda name: name != "dynoxide")

    (note,) = fallback_notes()

    assert "npm is missing" in note
    assert "slower" in note and "crash" in note


def test_without_anything_missing_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual start is quiet."""
    monkeypatch.setattr(plan_module, "has_binary", lambda name: True)

    assert fallback_notes() == []
