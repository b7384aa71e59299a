"""Checks of settings for `chatserver doctor`, beyond their form, which `chatserver.config` checks.

Each function checks one section: whether its URLs respond, its key files can be read, and its
libraries are installed. All are read-only: a URL gets a GET request or only a connection.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final
from urllib.parse import urlsplit

from chatserver.config import Settings
from chatserver.errors import ChatError, ConfigError, CorruptData
from chatserver.extras import describe_missing, is_installed
from chatserver.operations.doctor.model import DoctorFinding

STORE: Final = "settings"
CONNECT_S_MAX: Final = 5.0
CHECK_NETWORK: Final = "check the URL, the network, outbound.allow_private and outbound.ports"


def make_problem(setting: str, reason: str, fix: str = "") -> DoctorFinding:
    """Return the problem of one setting, with its environment variable."""
    section, _, name = setting.partition(".")
    variable = f"CHAT_{section}_{name}".upper()
    return DoctorFinding(STORE, "problem", f"{setting} ({variable}): {reason}", fix)


async def check_auth(settings: Settings) -> list[DoctorFinding]:
    """Check the host application's keys, and whether anyone can register."""
    from chatserver.auth.host_keys import read_static_keys

    auth, findings = settings.auth, []
    try:
        read_static_keys(auth)
    except ConfigError as exc:
        findings += [DoctorFinding(STORE, "problem", problem) for problem in exc.problems]
    if auth.host_jwks_url is not None:
        findings.append(await _check_key_set(settings, auth.host_jwks_url))
    if auth.local_accounts and auth.registration == "open":
        message = "anyone can register an account (auth.registration is open)"
        fix = "set CHAT_AUTH_REGISTRATION=closed if the host application creates accounts"
        findings.append(DoctorFinding(STORE, "note", message, fix))
    return findings


async def _check_key_set(settings: Settings, url: str) -> DoctorFinding:
    from chatserver.auth.host_keys import parse_jwks
    from chatserver.outbound.http_client import fetch_document, open_outbound

    setting = "auth.host_jwks_url"
    try:
        async with open_outbound(settings.outbound) as outbound:
            parse_jwks(await fetch_document(outbound, url), settings.auth.host_algorithm)
    except CorruptData as exc:
        return make_problem(setting, exc.message, "set it to the URL of the JSON Web Key Set")
    except ChatError as exc:
        return make_problem(setting, exc.message, CHECK_NETWORK)
    return DoctorFinding(STORE, "ok", f"{setting} has a key for {settings.auth.host_algorithm}")


async def check_telemetry(settings: Settings) -> list[DoctorFinding]:
    """Check the library and the collector of traces, and whether metrics are served."""
    telemetry, findings = settings.telemetry, []
    if telemetry.traces == "otlp":
        if is_installed("otel"):
            findings.append(
                await check_connection("telemetry.traces_endpoint", telemetry.traces_endpoint)
            )
        else:
            findings.append(make_problem("telemetry.traces", describe_missing("otel")))
    if telemetry.metrics_port is None:
        message = "metrics are not served (telemetry.metrics_port is not set)"
        fix = "set CHAT_TELEMETRY_METRICS_PORT for each process, and scrape it with Prometheus"
        findings.append(DoctorFinding(STORE, "note", message, fix))
    return findings


async def check_encryption(settings: Settings) -> list[DoctorFinding]:
    """Check that the key file can be read, and name the texts that are not encrypted."""
    from chatserver.encryption.plain_texts import list_plain_texts

    notes = [
        DoctorFinding(STORE, "note", message, fix) for message, fix in list_plain_texts(settings)
    ]
    if settings.encryption.key_file is None:
        return notes
    from chatserver.encryption.key_file import KeyFile

    try:
        KeyFile.read(settings.encryption.key_file)
    except ConfigError as exc:
        return [*notes, *(DoctorFinding(STORE, "problem", problem) for problem in exc.problems)]
    return [*notes, DoctorFinding(STORE, "ok", "encryption.key_file has keys")]


async def check_connection(setting: str, url: str) -> DoctorFinding:
    """Check that a server accepts connections; for https, that its certificate is trusted."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    address = f"{parts.hostname}:{port}"
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            _, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
    except TimeoutError:
        return make_problem(
            setting, f"{address} did not respond within {CONNECT_S_MAX:g} s", CHECK_NETWORK
        )
    except OSError as exc:
        return make_problem(
            setting, f"cannot connect to {address}: {exc.strerror or exc}", CHECK_NETWORK
        )
    writer.close()
    return DoctorFinding(STORE, "ok", f"{setting} responds")
