"""The plan of `chatserver dev`: which processes run, on which ports, with which settings."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from chatserver import compiled
from chatserver.config import load_settings
from chatserver.dev import process_plan as plan_module
from chatserver.dev.demo_users import DEMO_USERS
from chatserver.dev.ports import Ports
from chatserver.dev.process_plan import ProcessPlan, fallback_notes, require_aws_limits
from chatserver.errors import ConfigError

PORTS = Ports(page=31080, gateway=31081, redis=31082, dynamodb=31083, s3=31084)


def make_plan(folder: Path) -> ProcessPlan:
    return ProcessPlan(folder, PORTS, secret="0123456789abcdef" * 4)


def test_aws_limits_proxy_is_in_front_of_the_dynamodb_server(tmp_path: Path) -> None:
    """Processes use the port of the proxy, which starts after the server."""
    plan = dataclasses.replace(make_plan(tmp_path), local_dynamodb_port=31090)

    servers = {launch.name: launch for launch in plan.servers()}

    assert [*servers] == ["redis", "dynamodb", "limits", "s3"]
    assert servers["dynamodb"].port == 31090
    assert servers["limits"].port == PORTS.dynamodb
    assert "31090" in servers["limits"].argv
    assert plan.settings()["CHAT_WARM_ENDPOINT"].endswith(f":{PORTS.dynamodb}")


def test_aws_limits_require_the_dynamodb_server_from_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    """ministack verifies signatures, which requests through the proxy no longer match."""
    monkeypatch.setattr(plan_module, "has_binary", lambda _: False)
    with pytest.raises(ConfigError, match="install it with npm"):
        require_aws_limits()


def test_environment_of_every_process_is_valid_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)

    for launch in (plan.gateway(), plan.api(), plan.worker(), plan.seed()):
        with monkeypatch.context() as patch:
            for name, value in launch.env.items():
                patch.setenv(name, value)
            settings = load_settings()
            assert settings.redis.url == "redis://127.0.0.1:31082/0"
            assert settings.warm.endpoint == "http://127.0.0.1:31083"
            assert settings.telemetry.format == "console"


def test_send_path_is_compiled_unless_it_is_or_must_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build is started by `make run` only, and only if the next start would use it."""
    monkeypatch.setenv(compiled.PURE_PYTHON, "0")
    plan = dataclasses.replace(make_plan(tmp_path), build_script=Path("deploy/build_hook.py"))
    launch = plan.build()
    assert launch is not None and launch.argv[-1] == "deploy/build_hook.py"
    assert make_plan(tmp_path).build() is None

    monkeypatch.setenv(compiled.PURE_PYTHON, "1")
    assert plan.build() is None

    monkeypatch.setenv(compiled.PURE_PYTHON, "0")
    monkeypatch.setattr(compiled, "is_active", lambda: True)
    assert plan.build() is None


def test_only_the_api_has_demo_users(tmp_path: Path) -> None:
    """One-click login exists in one process only, and only in `dev`."""
    plan = make_plan(tmp_path)

    assert json.loads(plan.api().env["CHAT_API_DEMO_USERS"]) == list(DEMO_USERS)
    for launch in (plan.gateway(), plan.worker(), plan.seed()):
        assert "CHAT_API_DEMO_USERS" not in launch.env
        assert "CHAT_AUTH_ADMINS" not in launch.env
    assert json.loads(plan.api().env["CHAT_AUTH_ADMINS"]) == ["alice"]


def test_several_gateways_are_ready_when_all_are(tmp_path: Path) -> None:
    """One supervisor starts them; one ready gateway is not enough."""
    one, three = (
        make_plan(tmp_path).gateway(),
        ProcessPlan(tmp_path, PORTS, "s", gateways=3).gateway(),
    )

    assert one.argv[-2:] == ["--processes", "1"] and not one.ready_line
    assert three.argv[-2:] == ["--processes", "3"] and three.ready_line == "gateways.ready"


def test_gateway_allows_only_the_two_origins_of_the_page(tmp_path: Path) -> None:
    """The page may be opened as 127.0.0.1 or localhost."""
    origins = json.loads(make_plan(tmp_path).gateway().env["CHAT_GATEWAY_ORIGINS"])

    assert origins == ["http://127.0.0.1:31080", "http://localhost:31080"]


def test_secret_is_in_no_command_line(tmp_path: Path) -> None:
    """Any user of the machine can list the processes."""
    plan = make_plan(tmp_path)

    for launch in (plan.gateway(), plan.api(), plan.worker(), plan.seed()):
        assert not any(plan.secret in arg for arg in launch.argv)


def test_fallback_without_npm_is_named_with_its_drawbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note tells the user that the fallback is slower and may lose data in a crash."""
    monkeypatch.setattr(plan_module, "has_binary", lambda name: name != "dynoxide")

    (note,) = fallback_notes()

    assert "dynoxide is not installed" in note
    assert "slower" in note and "crash" in note


def test_no_fallback_note_if_all_programs_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "has_binary", lambda name: True)

    assert fallback_notes() == []
