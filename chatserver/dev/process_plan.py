"""Processes of `chatserver dev`: programs, ports and settings.

This module only defines the processes; `supervisor` starts them. Redis, DynamoDB and S3 servers
start first, then our own processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from chatserver import compiled
from chatserver.config import load_settings
from chatserver.dev.binaries import find_binary, has_binary
from chatserver.dev.demo_users import ADMINS, DEMO_USERS
from chatserver.dev.ports import Ports
from chatserver.dev.servers import (
    ACCESS_KEY,
    HOST,
    REGION,
    SECRET_KEY,
    Launch,
    aws_limits_launch,
    dynamodb_launch,
    is_http_ready,
    ministack_launch,
    redis_launch,
)
from chatserver.errors import ConfigError
from chatserver.features.registry import list_features, load

CLI = "chatserver.cli.main"
CALL_TIMEOUT_S = "9"  # timeouts in s; below the 10 s that a client waits for `welcome`
DRAIN_S = 2.0  # `drain_s` of the gateways; short, so that Ctrl-C is fast
STOP_S = 20.0  # time for a process to end before it is killed


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessPlan:
    """The processes and settings of one run of `chatserver dev`."""

    folder: Path
    ports: Ports
    secret: str
    gateways: int = 1
    local_dynamodb_port: int | None = None  # port of DynamoDB behind the `--aws-limits` proxy
    build_script: Path | None = None  # compiles the send path for the next start

    @property
    def page_url(self) -> str:
        return f"http://{HOST}:{self.ports.page}/"

    @property
    def gateway_url(self) -> str:
        return f"ws://{HOST}:{self.ports.gateway}/"

    @property
    def origins(self) -> list[str]:
        """The origins of the web client: 127.0.0.1 and localhost."""
        return [f"http://{name}:{self.ports.page}" for name in (HOST, "localhost")]

    def servers(self) -> list[Launch]:
        """Return the servers in start order."""
        port = self.local_dynamodb_port or self.ports.dynamodb
        dynamodb = [dynamodb_launch(self.folder / "dynamodb", port)]
        if self.local_dynamodb_port is not None:
            dynamodb.append(aws_limits_launch(self.folder, self.ports.dynamodb, port))
        return [
            redis_launch(self.folder / "redis", self.ports.redis),
            *dynamodb,
            ministack_launch(self.folder / "s3", self.ports.s3, service="s3"),
        ]

    def seed(self) -> Launch:
        """Return the process that creates tables and demo users, then exits."""
        return self._make_launch("tables", "chatserver.dev.seed")

    def worker(self) -> Launch:
        """Return the process that runs all workers."""
        # A worker has no port to check.
        return self._make_launch("worker", CLI, "worker", "all", ready_line="workers.ready")

    def gateway(self) -> Launch:
        """Return the gateway, or the supervisor of several gateways."""
        port = self.ports.gateway
        env = {
            "CHAT_GATEWAY_HOST": HOST,
            "CHAT_GATEWAY_PORT": str(port),
            "CHAT_GATEWAY_ORIGINS": json.dumps(self.origins),
            "CHAT_GATEWAY_DRAIN_S": str(DRAIN_S),
        }
        ready_line = "gateways.ready" if self.gateways > 1 else ""  # empty: check over HTTP
        processes = ("--processes", str(self.gateways))
        return self._make_launch(
            "gateway", CLI, "gateway", *processes, port=port, env=env, ready_line=ready_line
        )

    def api(self) -> Launch:
        """Return the API, the only process with demo users in its settings."""
        port = self.ports.page
        env = {
            "CHAT_API_HOST": HOST,
            "CHAT_API_PORT": str(port),
            "CHAT_API_GATEWAY_URL": self.gateway_url,
            "CHAT_API_DEMO_USERS": json.dumps(DEMO_USERS),
            "CHAT_AUTH_ADMINS": json.dumps(ADMINS),
            "CHAT_AUTH_COOKIE_SECURE": "false",  # browsers may refuse Secure cookies over HTTP
        }
        return self._make_launch("api", CLI, "api", port=port, env=env)

    def build(self) -> Launch | None:
        """Return the process that compiles the send path; None if it is compiled, or must not be.

        It has the lowest priority, so that it delays nothing.
        """
        is_wanted = not compiled.is_active() and os.environ.get(compiled.PURE_PYTHON) != "1"
        if self.build_script is None or not is_wanted:
            return None
        argv = ["nice", "-n", "19", sys.executable, str(self.build_script)]
        env = {"PYTHONUNBUFFERED": "1"}
        return Launch("build", argv, 0, self.folder, lambda: True, env=env, stop_s=STOP_S)

    def check_settings(self) -> None:
        """Check the settings of every process before any server is started.

        Raises:
            ConfigError: settings are invalid; the error lists every problem.
        """
        problems: dict[str, None] = {}
        for launch in (self.worker(), self.gateway(), self.api()):
            with _set_environment(launch.environment()):
                try:
                    load_settings(requires_secret=True)
                except ConfigError as exc:
                    problems.update(dict.fromkeys(exc.problems))
        if problems:
            raise ConfigError(*problems)

    def _make_launch(
        self,
        name: str,
        module: str,
        *arguments: str,
        port: int = 0,
        env: Mapping[str, str] = {},
        ready_line: str = "",
    ) -> Launch:
        return Launch(
            name=name,
            argv=[sys.executable, "-m", module, *arguments],
            port=port,
            folder=self.folder,
            is_ready=lambda: not port or is_http_ready(port, "/healthz"),
            env={**self.settings(), **env},
            stop_s=STOP_S,
            ready_line=ready_line,
        )

    def _load_feature_settings(self) -> dict[str, str]:
        settings: dict[str, str] = {}
        for feature in list_features():
            if feature.dev_settings:
                settings |= load(feature.dev_settings)(self.secret)
        return settings

    def settings(self) -> dict[str, str]:
        """Return the settings shared by all of our processes."""
        return {
            "CHAT_REDIS_URL": f"redis://{HOST}:{self.ports.redis}/0",
            # Long timeouts: a slow response on a busy machine must not count as an outage.
            "CHAT_REDIS_CALL_TIMEOUT_S": CALL_TIMEOUT_S,
            "CHAT_GATEWAY_RPC_TIMEOUT_S": CALL_TIMEOUT_S,
            "CHAT_WARM_ENDPOINT": f"http://{HOST}:{self.ports.dynamodb}",
            "CHAT_WARM_REGION": REGION,
            "CHAT_WARM_CALL_TIMEOUT_S": CALL_TIMEOUT_S,
            "CHAT_WARM_ACCESS_KEY": ACCESS_KEY,
            "CHAT_WARM_SECRET_KEY": SECRET_KEY,
            "CHAT_COLD_ENDPOINT": f"http://{HOST}:{self.ports.s3}",
            "CHAT_COLD_ACCESS_KEY": ACCESS_KEY,
            "CHAT_COLD_SECRET_KEY": SECRET_KEY,
            "CHAT_COLD_REGION": REGION,
            "CHAT_COLD_ORIGINS": json.dumps(self.origins),
            "CHAT_AUTH_SECRET": self.secret,
            **self._load_feature_settings(),
            "CHAT_OUTBOUND_ALLOW_PRIVATE": json.dumps(["127.0.0.0/8", "::1"]),
            "CHAT_SEARCH_INDEX": str(self.folder.resolve() / "search"),
            "CHAT_ARCHIVE_TTL_SWEEP": "true",
            "CHAT_CHATS_INVITATIONS": "never",  # never ask users before adding them to groups
            "CHAT_TELEMETRY_FORMAT": "console",
            "CHAT_TELEMETRY_LEVEL": "info",  # `ready_line` is logged at this level
            "PYTHONUNBUFFERED": "1",
        }


@contextlib.contextmanager
def _set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def require_aws_limits() -> None:
    """Check that the local DynamoDB server works behind the `--aws-limits` proxy.

    Raises:
        ConfigError: the server is ministack, which verifies the signature of each request.
    """
    if not has_binary("dynoxide"):
        raise ConfigError("--aws-limits needs the DynamoDB server dynoxide; install it with npm")


def require_servers() -> None:
    """Check that the servers without a fallback are installed.

    Raises:
        ConfigError: says how to install each missing one.
    """
    problems: list[str] = []
    for name in ("redis-server", "ministack"):
        try:
            find_binary(name)
        except ConfigError as exc:
            problems += exc.problems
    if problems:
        raise ConfigError(*problems)


def fallback_notes() -> list[str]:
    """Return notes about missing programs and their replacements."""
    if has_binary("dynoxide"):
        return []
    return [
        "DynamoDB: dynoxide is not installed, so ministack is used instead. ministack is "
        "slower and loses data in a crash; Ctrl-C saves the data."
    ]
