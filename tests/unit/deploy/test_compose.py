"""deploy/compose: Compose accepts it, SCALE multiplies it, and its parts agree."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from chatserver.config import Settings, load_settings
from tests.support.deployments import (
    BOXES,
    COMPOSE,
    DEPLOY,
    SECRETS,
    dump_yaml,
    given_settings,
    render_compose,
    run_tool,
)

OURS = ("gateway", "api", "worker", "tables")
CHECK = """
import sys
from compose_spec import PyCompose
PyCompose.from_yaml(sys.stdin.read()).validate()
"""


def image_environment() -> dict[str, str]:
    """Return the settings that the image brings."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    return dict(re.findall(r"\b(CHAT_\w+)=(\S+)", text.rpartition("\nFROM ")[2]))


def settings_of(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    with given_settings(monkeypatch, image_environment() | service["environment"]):
        return load_settings()


@pytest.mark.parametrize("name", BOXES)
def test_box_is_what_compose_takes(name: str) -> None:
    """And what it does not know would be seen."""
    box = render_compose(*BOXES[name])

    done = run_tool("python", "-c", CHECK, given=dump_yaml(box))
    box["services"]["api"]["cap_dorp"] = ["ALL"]
    wrong = run_tool("python", "-c", CHECK, given=dump_yaml(box))

    assert done.returncode == 0, done.stderr
    assert wrong.returncode != 0
    assert "cap_dorp" in wrong.stderr


@pytest.mark.parametrize("name", BOXES)
def test_containers_can_write_nowhere_and_become_nobody(name: str) -> None:
    """But to their volumes and /tmp; the door alone may have ports below 1024."""
    for service, made in render_compose(*BOXES[name])["services"].items():
        assert made["read_only"] is True, service
        assert made["cap_drop"] == ["ALL"]
        assert made.get("cap_add", []) == (["NET_BIND_SERVICE"] if service == "front" else [])
        assert made["security_opt"] == ["no-new-privileges:true"]
        assert made.get("volumes") or made["tmpfs"], service


def test_one_variable_scales_all_that_can_be_scaled() -> None:
    """Gateways, APIs and workers; the tables are made once."""
    box = render_compose(("compose.yaml",), {**SECRETS, "SCALE": "5"})["services"]

    replicas = {name: box[name]["deploy"]["replicas"] for name in OURS}

    assert replicas == {"gateway": 5, "api": 5, "worker": 5, "tables": 1}
    assert not [name for name in OURS if "ports" in box[name] or "container_name" in box[name]]


@pytest.mark.parametrize("name", BOXES)
def test_search_index_is_a_volume_of_those_that_use_it(name: str) -> None:
    """The folder of the setting is the same volume in APIs and workers, and the image has it."""
    box = render_compose(*BOXES[name])
    image = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]

    for service in ("api", "worker"):
        made = box["services"][service]
        assert made["volumes"] == [f"search:{made['environment']['CHAT_SEARCH_INDEX']}"]
    assert "search" in box["volumes"]
    assert "install -d -o 10001 -g 10001 /search\n" in image


@pytest.mark.parametrize("missing", SECRETS)
def test_box_has_no_secret_of_its_own(missing: str) -> None:
    """A missing secret is an error; there is no default that everybody knows."""
    variables = {name: value for name, value in SECRETS.items() if name != missing}

    with pytest.raises(AssertionError, match=f"{missing}: make one"):
        render_compose(("compose.yaml",), variables)


@pytest.mark.parametrize("name", BOXES)
def test_what_depends_on_health_depends_on_what_tells_it(name: str) -> None:
    """A container without a health check is never healthy, and Compose would wait forever."""
    services = render_compose(*BOXES[name])["services"]
    stages = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")
    (objects,) = (stage for stage in stages if " AS objects\n" in stage)
    has_check = {"objects": "HEALTHCHECK" in objects, "ours": "HEALTHCHECK" in stages[-1]}

    for service, made in services.items():
        for needed, how in made.get("depends_on", {}).items():
            other = services[needed]
            if how["condition"] == "service_completed_successfully":
                assert other["restart"] == "no", service
            else:
                checked = has_check["ours" if needed in OURS else "objects"] and (
                    needed in (*OURS, "objects")
                )
                assert other.get("healthcheck", {}).get("test") or checked, (service, needed)


@pytest.mark.parametrize("name", BOXES)
def test_addresses_of_the_box_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, sockets and files are reached at the door, and it knows who is behind it."""
    box = render_compose(*BOXES[name])
    front = box["services"]["front"]
    is_local = name == "compose-1"
    page = "http://localhost:8080" if is_local else "https://chat.example.com"
    files = "http://localhost:8090" if is_local else "https://files.chat.example.com"
    door = (COMPOSE / "Caddyfile").read_text(encoding="utf-8")
    upstreams = dict(re.findall(r"\{\$(\w+)_PORT:(\d+)\}", door))

    for service in ("gateway", "api", "worker"):
        settings = settings_of(box["services"][service], monkeypatch)
        assert settings.api.gateway_url == page.replace("http", "ws", 1) + "/"
        assert settings.gateway.origins == settings.cold.origins == [page]
        assert settings.cold.public_endpoint == files
        assert settings.auth.cookie_secure is page.startswith("https")
        proxy = front["networks"]["front"]["ipv4_address"]
        assert settings.api.trusted_proxies == settings.gateway.trusted_proxies == [proxy]
        (pool,) = box["networks"]["front"]["ipam"]["config"]
        assert ip_address(proxy) in ip_network(pool["subnet"])
        assert ip_address(proxy) not in ip_network(pool["ip_range"])  # no other container gets it
        assert int(upstreams["GATEWAY"]) == settings.gateway.port
        assert int(upstreams["API"]) == settings.api.port
        assert f"/{settings.cold.bucket}/*" in door
        assert settings.cold.endpoint == f"http://objects:{upstreams['OBJECTS']}"
        objects = box["services"]["objects"]["environment"]
        assert settings.cold.access_key == objects["AWS_ACCESS_KEY_ID"]
        secret = settings.cold.secret_key
        assert secret is not None
        assert secret.get_secret_value() == objects["AWS_SECRET_ACCESS_KEY"]
    sites = [front["environment"][each] for each in ("PAGE_ADDRESS", "FILES_ADDRESS")]
    names = ["chat.example.com", "files.chat.example.com"]
    assert sites == ([":8080", ":8090"] if is_local else names)
    assert {"127.0.0.1:8080:8080", "127.0.0.1:8090:8090"} <= set(front["ports"])
    assert ("443:443" in front["ports"]) is not is_local


def test_door_is_what_caddy_takes() -> None:
    """Well formed, and as `caddy fmt` writes it."""
    file = COMPOSE / "Caddyfile"

    valid = run_tool("caddy", "validate", "--adapter", "caddyfile", "--config", file)
    formatted = run_tool("caddy", "fmt", file)

    assert valid.returncode == 0, valid.stderr
    assert formatted.stdout == file.read_text(encoding="utf-8")
