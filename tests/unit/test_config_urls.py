"""Settings that are URLs: their form is checked, and no error shows a part of a password."""

from __future__ import annotations

from typing import get_args

import pytest

from chatserver.config import list_sections, load_settings
from chatserver.errors import ConfigError

PASSWORD = "pa55w0rd"


def problem_of(section: str, name: str, value: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(**{section: {name: value}})
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    "url",
    [
        f"redis://chat:{PASSWORD}/x@h:6379/0",
        f"redis://chat:{PASSWORD}#x@h:6379/0",
        f"redis://chat:{PASSWORD}?x@h:6379/0",
        f"redis://:{PASSWORD}[x@h:6379/0",
        f"redis://:{PASSWORD} x@h:6379/0",
        f"rediss://chat:x@h:{PASSWORD}@h:x/0",
    ],
)
def test_redis_password_that_is_not_percent_encoded_is_refused_and_not_shown(url: str) -> None:
    """The error says to percent-encode it."""
    problem = problem_of("redis", "url", url)

    assert "CHAT_REDIS_URL" in problem
    assert "percent-encode" in problem
    assert PASSWORD not in problem


@pytest.mark.parametrize(
    "url",
    ["nonsense", "http://h:6379", "redis://h:port/0", "redis://h:0/0", "redis://h/one", "h:6379",
     "redis://h:6379/0#1", "redis://h/0?ssl_ca_certs=/ca.pem", "rediss://h?decode_responses=1",
     "redis://h?db=abc", "unix:///s?db=-1"],
)  # fmt: skip
def test_redis_url_of_another_form_is_refused(url: str) -> None:
    """The error names the setting."""
    assert problem_of("redis", "url", url).startswith("redis.url (CHAT_REDIS_URL): ")


@pytest.mark.parametrize(
    "url",
    ["redis://h", "redis://h:7000/2", "redis://[::1]:6379/0", "redis://chat:p%40%2Fx@h/0",
     "redis://:p@x@h/0", "rediss://u:p@h:1/0?ssl_ca_certs=/ca.pem&ssl_certfile=c&ssl_keyfile=k",
     "unix:///run/redis.sock", "unix:///run/redis.sock?db=1&password=x", "redis://h?db=1"],
)  # fmt: skip
def test_redis_url_is_accepted(url: str) -> None:
    """The forms of redis-py for one server, with the options that this server supports."""
    assert load_settings(redis={"url": url}).redis.url == url


@pytest.mark.parametrize(
    "origin",
    ["chat.example.com", "https://chat.example.com/", "https://chat.example.com/app", "*",
     "https://Chat.example.com", "https://chat.example.com:443", "http://chat.example.com:80",
     "https://", "https://u@chat.example.com", "https://*.example.com"],
)  # fmt: skip
def test_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    """It would never match, so the web client could not connect."""
    assert "CHAT_GATEWAY_ORIGINS" in problem_of("gateway", "origins", [origin])


@pytest.mark.parametrize(
    "origin",
    ["https://chat.example.com", "http://localhost:8080", "http://[::1]:8080", "null", "file://",
     "capacitor://localhost", "https://chat.example.com:8443"],
)  # fmt: skip
def test_origin_as_browsers_send_it_is_accepted(origin: str) -> None:
    """Packaged applications have other schemes than http."""
    assert load_settings(gateway={"origins": [origin]}).gateway.origins == [origin]


def test_origins_of_the_bucket_may_have_a_wildcard() -> None:
    """S3 accepts one `*`."""
    origins = ["*", "https://*.example.com"]

    assert load_settings(cold={"origins": origins}).cold.origins == origins


def test_every_setting_named_like_a_url_checks_its_form() -> None:
    """A new setting for an address must have a type of `chatserver.config.urls`."""
    unchecked = set()
    for section, section_type in list_sections().items():
        for name, field in section_type.model_fields.items():
            if not name.endswith(("url", "endpoint", "origins", "sentinels")):
                continue
            types = [field.annotation, *get_args(field.annotation)]
            is_checked = bool(field.metadata) or any(hasattr(t, "__metadata__") for t in types)
            if not is_checked:
                unchecked.add(f"{section}.{name}")

    assert unchecked == set()


@pytest.mark.parametrize(
    ("section", "name"),
    [("auth", "host_jwks_url"), ("webhooks", "events_url"), ("warm", "endpoint"),
     ("cold", "public_endpoint"), ("companions", "openai_url"), ("telemetry", "traces_endpoint")],
)  # fmt: skip
@pytest.mark.parametrize("url", ["h:80", "ftp://h", "http://", "http://h:port", "https:h"])
def test_http_url_of_another_form_is_refused(section: str, name: str, url: str) -> None:
    """The error names the setting and the form."""
    with pytest.raises(ConfigError) as caught:
        load_settings(**{section: {name: url}})

    assert any(f"{section}.{name}" in text and "http://" in text for text in caught.value.problems)
