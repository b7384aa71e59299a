"""deploy/compose: valid for Compose, scaled by SCALE, with consistent addresses."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from chatserver.config import Settings, load_settings
from tests.support.deployments import (
    COMPOSE,
    COMPOSE_CASES,
    DEPLOY,
    SECRETS,
    dump_yaml,
    given_settings,
    render_compose,
    run_tool,
)

CHATSERVER_SERVICES = ("gateway", "api", "worker", "tables")
CHECK = """
import sys
from compose_spec import PyCompose
PyCompose.from_yaml(sys.stdin.read()).validate()
"""


def image_environment() -> dict[str, str]:
    """Return the settings that are built into the image."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    return dict(re.findall(r"\b(CHAT_\w+)=(\S+)", text.rpartition("\nFROM ")[2]))


def settings_of(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    with given_settings(monkeypatch, image_environment() | service["environment"]):
        return load_settings()


@pytest.mark.parametrize("name", COMPOSE_CASES)
def test_compose_file_is_valid(name: str) -> None:
    """An unknown field makes the validation fail."""
    compose = render_compose(*COMPOSE_CASES[name])

    done = run_tool("python", "-c", CHECK, stdin=dump_yaml(compose))
    compose["services"]["api"]["cap_dorp"] = ["ALL"]
    invalid = run_tool("python", "-c", CHECK, stdin=dump_yaml(compose))

    assert done.returncode == 0, done.stderr
    assert invalid.returncode != 0
    assert "cap_dorp" in invalid.stderr


@pytest.mark.parametrize("name", COMPOSE_CASES)
def test_containers_have_minimal_rights(name: str) -> None:
    """They write only to volumes and /tmp; only the proxy may use ports below 1024."""
    for service, definition in render_compose(*COMPOSE_CASES[name])["services"].items():
        assert definition["read_only"] is True, service
        assert definition["cap_drop"] == ["ALL"]
        assert definition.get("cap_add", []) == (["NET_BIND_SERVICE"] if service == "front" else [])
        assert definition["security_opt"] == ["no-new-privileges:true"]
        assert definition.get("volumes") or definition["tmpfs"], service


def test_scale_variable_scales_gateways_apis_and_workers() -> None:
    """The tables are created once."""
    compose = render_compose(("compose.yaml",), {**SECRETS, "SCALE": "5"})["services"]

    replicas = {name: compose[name]["deploy"]["replicas"] for name in CHATSERVER_SERVICES}

    assert replicas == {"gateway": 5, "api": 5, "worker": 5, "tables": 1}
    assert not [
        name
        for name in CHATSERVER_SERVICES
        if "ports" in compose[name] or "container_name" in compose[name]
    ]


@pytest.mark.parametrize("name", COMPOSE_CASES)
def test_search_index_is_one_volume_of_apis_and_workers(name: str) -> None:
    """The setting has the path of the volume, and the image contains the folder."""
    compose = render_compose(*COMPOSE_CASES[name])
    image = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]

    for service in ("api", "worker"):
        definition = compose["services"][service]
        assert definition["volumes"] == [f"search:{definition['environment']['CHAT_SEARCH_INDEX']}"]
    assert "search" in compose["volumes"]
    assert "install -d -o 10001 -g 10001 /search\n" in image


@pytest.mark.parametrize("missing", SECRETS)
def test_compose_without_a_secret_fails(missing: str) -> None:
    """There are no default secrets."""
    variables = {name: value for name, value in SECRETS.items() if name != missing}

    with pytest.raises(AssertionError, match=f"{missing}: make one"):
        render_compose(("compose.yaml",), variables)


@pytest.mark.parametrize("name", COMPOSE_CASES)
def test_services_that_others_wait_for_have_a_health_check(name: str) -> None:
    """A container without a health check is never healthy, and Compose would wait forever."""
    services = render_compose(*COMPOSE_CASES[name])["services"]
    stages = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")
    (objects,) = (stage for stage in stages if " AS objects\n" in stage)
    has_check = {"objects": "HEALTHCHECK" in objects, "chatserver": "HEALTHCHECK" in stages[-1]}

    for service, definition in services.items():
        for needed, dependency in definition.get("depends_on", {}).items():
            other = services[needed]
            if dependency["condition"] == "service_completed_successfully":
                assert other["restart"] == "no", service
            else:
                checked = has_check[
                    "chatserver" if needed in CHATSERVER_SERVICES else "objects"
                ] and (needed in (*CHATSERVER_SERVICES, "objects"))
                assert other.get("healthcheck", {}).get("test") or checked, (service, needed)


@pytest.mark.parametrize("name", COMPOSE_CASES)
def test_addresses_of_the_compose_file_are_consistent(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages, sockets and files are reached through the proxy, and its address is trusted."""
    compose = render_compose(*COMPOSE_CASES[name])
    front = compose["services"]["front"]
    is_local = name == "compose-1"
    page = "http://localhost:8080" if is_local else "https://chat.example.com"
    files = "http://localhost:8090" if is_local else "https://files.chat.example.com"
    caddyfile = (COMPOSE / "Caddyfile").read_text(encoding="utf-8")
    upstreams = dict(re.findall(r"\{\$(\w+)_PORT:(\d+)\}", caddyfile))

    for service in ("gateway", "api", "worker"):
        settings = settings_of(compose["services"][service], monkeypatch)
        assert settings.api.gateway_url == page.replace("http", "ws", 1) + "/"
        assert settings.gateway.origins == settings.cold.origins == [page]
        assert settings.cold.public_endpoint == files
        assert settings.auth.cookie_secure is page.startswith("https")
        proxy = front["networks"]["front"]["ipv4_address"]
        assert settings.api.trusted_proxies == settings.gateway.trusted_proxies == [proxy]
        (pool,) = compose["networks"]["front"]["ipam"]["config"]
        assert ip_address(proxy) in ip_network(pool["subnet"])
        assert ip_address(proxy) not in ip_network(pool["ip_range"])  # no other container gets it
        assert int(upstreams["GATEWAY"]) == settings.gateway.port
        assert int(upstreams["API"]) == settings.api.port
        assert f"/{settings.cold.bucket}/*" in caddyfile
        assert settings.cold.endpoint == f"http://objects:{upstreams['OBJECTS']}"
        objects = compose["services"]["objects"]["environment"]
        assert settings.cold.access_key == objects["AWS_ACCESS_KEY_ID"]
        secret = settings.cold.secret_key
        assert secret is not None
        assert secret.get_secret_value() == objects["AWS_SECRET_ACCESS_KEY"]
    sites = [front["environment"][each] for each in ("PAGE_ADDRESS", "FILES_ADDRESS")]
    names = ["chat.example.com", "files.chat.example.com"]
    assert sites == ([":8080", ":8090"] if is_local else names)
    assert {"127.0.0.1:8080:8080", "127.0.0.1:8090:8090"} <= set(front["ports"])
    assert ("443:443" in front["ports"]) is not is_local


def test_caddyfile_is_valid_and_formatted() -> None:
    file = COMPOSE / "Caddyfile"

    valid = run_tool("caddy", "validate", "--adapter", "caddyfile", "--config", file)
    formatted = run_tool("caddy", "fmt", file)

    assert valid.returncode == 0, valid.stderr
    assert formatted.stdout == file.read_text(encoding="utf-8")
