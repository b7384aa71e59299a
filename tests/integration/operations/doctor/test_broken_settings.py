"""`chatserver doctor` names each broken setting, and changes nothing in the stores."""

from __future__ import annotations

import asyncio
import http.server
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chatserver.cli.main import cli
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold, Redis
from chatserver.hot.redis.factory import open_hot
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import Tables
from tests.support.servers.processes import free_port, redis_client

SECRET = "s" * 32
PRIVATE = '["127.0.0.0/8"]'
KEYS = {"CHAT_AUTH_HOST_ALGORITHM": "RS256", "CHAT_AUTH_LOCAL_ACCOUNTS": "false"}
HOOK = {"CHAT_WEBHOOKS_SECRET": SECRET}
PASSWORD = "p4ss/w0rd"
DEAD = "http://127.0.0.1:{port}/"
PAGE = "{page}"


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """The address of a server that returns an HTML page for every path."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join(10)


@pytest.fixture
async def valid(
    redis_url: str, tables: Tables, s3: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, str]]:
    """The settings of a deployment in use; its workers do not run."""
    warm, cold = tables.settings, cold_settings(s3)
    async with open_s3(cold) as store:
        await store.call("create_bucket")
        await apply_bucket(store, cold)
    async with open_hot(Redis(url=redis_url)):
        pass
    env = {
        "CHAT_REDIS_URL": redis_url,
        "CHAT_AUTH_SECRET": SECRET,
        "CHAT_WARM_ENDPOINT": str(warm.endpoint),
        "CHAT_WARM_REGION": warm.region,
        "CHAT_WARM_ACCESS_KEY": warm.access_key or "",
        "CHAT_WARM_SECRET_KEY": warm.secret_key.get_secret_value() if warm.secret_key else "",
        "CHAT_WARM_TABLE_PREFIX": warm.table_prefix,
        "CHAT_COLD_ENDPOINT": str(cold.endpoint),
        "CHAT_COLD_BUCKET": cold.bucket,
        "CHAT_COLD_REGION": cold.region,
        "CHAT_COLD_ACCESS_KEY": cold.access_key or "",
        "CHAT_COLD_SECRET_KEY": cold.secret_key.get_secret_value() if cold.secret_key else "",
    }
    for name in list(os.environ):
        if name.startswith("CHAT_"):
            monkeypatch.delenv(name)
    yield env


async def run_doctor(env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Result:
    with monkeypatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        return await asyncio.to_thread(CliRunner().invoke, cli, ["doctor"])


async def read_stores(env: Mapping[str, str], tables: Tables, cold: Cold) -> dict[str, Any]:
    """Return the keys of Redis with their values, the tables with their items, and the objects."""
    with redis_client(env["CHAT_REDIS_URL"]) as client:
        keys = {key: client.dump(key) for key in client.scan_iter(count=1000)}
    # Other tests have tables, too, and a page of names has at most 100.
    names, page = [], {}
    while True:
        listed = await tables.client.call("list_tables", page)
        names += listed["TableNames"]
        if (last := listed.get("LastEvaluatedTableName")) is None:
            break
        page = {"ExclusiveStartTableName": last}
    names = [name for name in names if name.startswith(tables.settings.table_prefix)]
    items = {name: await tables.client.call("scan", {"TableName": name}) for name in names}
    async with open_s3(cold) as store:
        objects = (await store.call("list_objects_v2")).get("Contents", [])
    return {
        "keys": keys,
        "items": {name: found["Items"] for name, found in items.items()},
        "objects": [each["Key"] for each in objects],
    }


# Each row: the broken settings, and the texts that the output must have.
BROKEN: list[tuple[dict[str, str], list[str]]] = [
    ({**KEYS, "CHAT_AUTH_HOST_JWKS_URL": DEAD, "CHAT_OUTBOUND_ALLOW_PRIVATE": PRIVATE},
     ["CHAT_AUTH_HOST_JWKS_URL", "could not be reached"]),
    ({**KEYS, "CHAT_AUTH_HOST_JWKS_URL": PAGE, "CHAT_OUTBOUND_ALLOW_PRIVATE": PRIVATE},
     ["CHAT_AUTH_HOST_JWKS_URL", "key set: cannot be parsed"]),
    ({**KEYS, "CHAT_AUTH_HOST_JWKS_URL": PAGE},
     ["CHAT_AUTH_HOST_JWKS_URL", "outbound.allow_private"]),
    ({**KEYS, "CHAT_AUTH_HOST_JWKS_URL": "idp.example/keys"}, ["CHAT_AUTH_HOST_JWKS_URL"]),
    ({**KEYS, "CHAT_AUTH_HOST_PUBLIC_KEYS": "no key"}, ["auth.host_public_keys"]),
    ({"CHAT_AUTH_HOST_ALGORITHM": "HS256", "CHAT_AUTH_LOCAL_ACCOUNTS": "false",
      "CHAT_AUTH_HOST_SECRET": "short"}, ["auth.host_secret"]),
    ({"CHAT_AUTH_SECRET": "short", "CHAT_GATEWAY_PORT": "99999"},
     ["CHAT_AUTH_SECRET", "CHAT_GATEWAY_PORT"]),
    ({"CHAT_AUTH_SECRET": ""}, ["CHAT_AUTH_SECRET", "openssl rand"]),
    ({**HOOK, "CHAT_WEBHOOKS_EVENTS_URL": DEAD, "CHAT_OUTBOUND_ALLOW_PRIVATE": PRIVATE},
     ["CHAT_WEBHOOKS_EVENTS_URL", "could not be reached"]),
    ({**HOOK, "CHAT_WEBHOOKS_BEFORE_SEND_URL": DEAD, "CHAT_OUTBOUND_ALLOW_PRIVATE": PRIVATE},
     ["CHAT_WEBHOOKS_BEFORE_SEND_URL", "could not be reached"]),
    ({**HOOK, "CHAT_WEBHOOKS_EVENTS_URL": "ftp://app.example/"}, ["CHAT_WEBHOOKS_EVENTS_URL"]),
    ({"CHAT_WEBHOOKS_EVENTS_URL": "https://app.example/"}, ["webhooks: secret must be"]),
    ({"CHAT_GATEWAY_ORIGINS": '["chat.example.com"]'}, ["CHAT_GATEWAY_ORIGINS", "scheme://host"]),
    ({"CHAT_GATEWAY_ORIGINS": '["https://chat.example.com/"]'}, ["CHAT_GATEWAY_ORIGINS", "path"]),
    ({"CHAT_COLD_ORIGINS": '["chat.example.com"]'}, ["CHAT_COLD_ORIGINS", "scheme://host"]),
    ({"CHAT_API_GATEWAY_URL": "http://chat.example.com/"}, ["CHAT_API_GATEWAY_URL", "wss://"]),
    ({"CHAT_REDIS_PARTITIONS": "12"}, ["redis.partitions", "initialized with 1"]),
    ({"CHAT_WARM_TENANT": "acme"}, ["CHAT_WARM_TENANT", "belongs to"]),
    ({"CHAT_REDIS_CLUSTER": "true"}, ["CHAT_REDIS_CLUSTER"]),
    ({"CHAT_REDIS_URL": f"redis://chat:{PASSWORD}@127.0.0.1:6379/0"},
     ["CHAT_REDIS_URL", "percent-encode"]),
    ({"CHAT_REDIS_URL": "redis://127.0.0.1:{port}/0"}, ["CHAT_REDIS_URL", "{port}"]),
    ({"CHAT_REDIS_URL": "127.0.0.1:6379"}, ["CHAT_REDIS_URL", "redis://"]),
    ({"CHAT_REDIS_URL": "rediss://127.0.0.1:6379/0?ssl_ca_certs=/no/such/ca.pem"},
     ["CHAT_REDIS_URL", "/no/such/ca.pem"]),
    ({"CHAT_REDIS_SENTINELS": '["sentinel.example:26379"]'}, ["CHAT_REDIS_SENTINELS"]),
    ({"CHAT_SEARCH_INDEX": "/dev/null/search"}, ["CHAT_SEARCH_INDEX", "not a folder"]),
    ({"CHAT_COMPANIONS_OPENAI_KEY": "k", "CHAT_COMPANIONS_OPENAI_URL": DEAD},
     ["CHAT_COMPANIONS_OPENAI_URL", "cannot connect"]),
    ({"CHAT_TELEMETRY_TRACES": "otlp", "CHAT_TELEMETRY_TRACES_ENDPOINT": DEAD},
     ["CHAT_TELEMETRY_TRACES_ENDPOINT", "cannot connect"]),
    ({"CHAT_ENCRYPTION_PROVIDER": "file", "CHAT_ENCRYPTION_KEY_FILE": "/no/such/keys"},
     ["CHAT_ENCRYPTION_KEY_FILE", "/no/such/keys"]),
    ({"CHAT_NOTIFY_VAPID_PRIVATE": "x", "CHAT_NOTIFY_VAPID_PUBLIC": "y"}, ["notify.vapid_"]),
    ({"CHAT_WARM_ENDPOINT": DEAD}, ["CHAT_WARM_ENDPOINT"]),
    ({"CHAT_WARM_ENDPOINT": "127.0.0.1:8000"}, ["CHAT_WARM_ENDPOINT", "http://"]),
    ({"CHAT_COLD_ENDPOINT": DEAD}, ["CHAT_COLD_ENDPOINT"]),
    ({"CHAT_COLD_BUCKET": "another-bucket"}, ["another-bucket", "is missing"]),
    ({"CHAT_WARM_TABLE_PREFIX": "another_"}, ["table another_", "is missing"]),
    ({"CHAT_GATEWAY_PING_INTERVAL_S": "5", "CHAT_PERSIST_LEASE_S": "3", "CHAT_NOPE": "1",
      "CHAT_API_PORT": "http"},
     ["gateway: pong_timeout_s", "persist: write_timeout_s", "CHAT_NOPE", "CHAT_API_PORT"]),
]  # fmt: skip


async def test_doctor_names_each_broken_setting_and_changes_nothing(
    valid: dict[str, str],
    tables: Tables,
    s3: str,
    page: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The output names setting and reason; Redis, the tables and the bucket stay as they were."""
    cold = cold_settings(s3).model_copy(update={"bucket": valid["CHAT_COLD_BUCKET"]})
    before = await read_stores(valid, tables, cold)
    healthy = await run_doctor(valid, monkeypatch)
    missing = []
    for broken, expected in BROKEN:
        port = str(free_port())
        env = {
            name: value.replace("{port}", port).replace("{page}", page)
            for name, value in {**valid, **broken}.items()
        }
        result = await run_doctor(env, monkeypatch)
        texts = [text.replace("{port}", port) for text in expected]
        missing += [
            (broken, text, result.output)
            for text in texts
            if not any(
                text in line
                for line in result.output.splitlines()
                if "PROBLEM" in line or "→" in line
            )
        ]
        missing += [(broken, result.output) for _ in [0] if result.exit_code != 1]
        missing += [(broken, part) for part in PASSWORD.split("/") if part in result.output]

    assert missing == []
    assert len(BROKEN) >= 30
    assert before["keys"]
    assert before["items"]
    after = await read_stores(valid, tables, cold)
    assert after.pop("keys").items() <= before.pop("keys").items()  # keys may expire meanwhile
    assert after == before
    assert "PROBLEM settings" not in healthy.output
    assert healthy.output.count("PROBLEM") == 2  # no worker `persist`, no worker `repair`


async def test_doctor_reports_a_missing_library(
    valid: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index in the bucket needs a library that few processes have."""
    monkeypatch.setattr("chatserver.extras.is_installed", lambda extra: extra != "search")

    result = await run_doctor({**valid, "CHAT_SEARCH_INDEX": "s3"}, monkeypatch)

    assert "PROBLEM settings: search: needs the extra `search`" in result.output
    assert "pip install '.[search]'" in result.output


async def test_doctor_without_local_accounts_does_not_warn_of_registration(
    valid: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can register where there are no passwords."""
    closed = await run_doctor({**valid, "CHAT_AUTH_LOCAL_ACCOUNTS": "false"}, monkeypatch)
    opened = await run_doctor(valid, monkeypatch)

    assert "can register" not in closed.output
    assert "can register" in opened.output


async def test_doctor_does_not_check_stores_whose_settings_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Checks of the default addresses would mislead."""
    env = {"CHAT_CONFIG": str(tmp_path / "missing.toml")}

    result = await run_doctor(env, monkeypatch)

    assert "PROBLEM settings: CHAT_CONFIG: there is no file" in result.output
    assert "not checked" in result.output
    assert "127.0.0.1" not in result.output
