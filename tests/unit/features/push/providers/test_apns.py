"""APNs: complete settings, renewal of the provider token, and a payload that always fits."""

from __future__ import annotations

import json
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from chatserver.config import Settings
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import ConfigError
from chatserver.features.push.model import Notice
from chatserver.features.push.providers.apns import (
    FORCED_RENEWAL_INTERVAL_S,
    PAYLOAD_BYTES_MAX,
    RENEW_S,
    WITHOUT_PREVIEW,
    Apns,
    ProviderToken,
    check_apns,
    is_apns_configured,
)
from chatserver.features.push.providers.registry import check_providers
from chatserver.features.push.settings import Notify
from chatserver.outbound.http2_client import Http2
from tests.support.constants import constants
from tests.support.fake_clocks import FakeClock
from workers.runner import run_workers

KEY = ec.generate_private_key(ec.SECP256R1())


def pem_of(key: Any, encryption: Any = None) -> str:
    """Return a key in PEM format."""
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    return pem.decode()


SETTINGS = {
    "apns_key": pem_of(KEY),
    "apns_key_id": "ABC123DEFG",
    "apns_team_id": "DEF123GHIJ",
    "apns_topic": "com.example.chat",
}


def apns_of(**changes: Any) -> Apns:
    """Return a provider that sends nothing."""
    settings = Notify(**(SETTINGS | changes))
    return Apns(cast(Http2, None), settings, SystemClock())


with constants({"chatserver.features.push.providers.apns.SOUND": "s" * 64}):
    APNS = apns_of()


def test_apns_settings_are_complete_or_absent() -> None:
    """The line breaks of the key may be escaped."""
    assert not is_apns_configured(Notify())
    check_providers(Notify())
    check_apns(Notify(**SETTINGS))
    check_apns(Notify(**{**SETTINGS, "apns_key": pem_of(KEY).replace("\n", "\\n")}))


@pytest.mark.parametrize("missing", list(SETTINGS))
async def test_missing_apns_setting_is_named_before_a_worker_starts(missing: str) -> None:
    """The check runs before the worker connects to Redis or a push service."""
    notify = Notify(**{**SETTINGS, missing: ""})

    with pytest.raises(ConfigError, match=rf"notify\.{missing}: is missing") as error:
        await run_workers(Settings(notify=notify), ["notify"])

    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("apns_key", "no key"),
        ("apns_key", pem_of(ec.generate_private_key(ec.SECP384R1()))),
        ("apns_key", pem_of(rsa.generate_private_key(65537, 2048))),
        ("apns_key", pem_of(KEY, BestAvailableEncryption(b"password"))),
        ("apns_key_id", "ABC123DEF"),
        ("apns_team_id", "abc123defg"),
        ("apns_topic", "com example"),
        ("apns_url", "http://api.push.apple.com"),
        ("apns_url", "https://api.push.apple.com/3"),
    ],
)
def test_invalid_apns_setting_is_refused_without_its_value(name: str, value: str) -> None:
    """The error does not print the value, because one of the settings is a private key."""
    with pytest.raises(ConfigError, match=rf"notify\.{name}: ") as error:
        check_apns(Notify(**{**SETTINGS, name: value}))

    assert len(error.value.problems) == 1
    assert not name.endswith("key") or value not in str(error.value)


def test_invalid_push_settings_are_refused_together() -> None:
    """All invalid settings are reported at once."""
    with pytest.raises(ConfigError) as error:
        check_providers(Notify(vapid_private="x", fcm_account="{}", apns_topic="a b"))

    shown = str(error.value)
    assert all(name in shown for name in ("vapid_private", "fcm_account", "apns_key", "apns_topic"))


def test_provider_token_is_used_for_forty_minutes_and_then_renewed() -> None:
    """Apple rejects tokens older than an hour, and renewals within 20 minutes."""
    clock = FakeClock()
    tokens = ProviderToken(key=KEY, key_id="ABC123DEFG", team_id="DEF123GHIJ", clock=clock)

    first = tokens.get()
    clock.now += RENEW_S - 1
    assert tokens.get() == first
    clock.now += 1
    second = tokens.get()

    claims = jwt.decode(second, KEY.public_key(), ["ES256"], options={"verify_iat": False})
    assert claims == {"iss": "DEF123GHIJ", "iat": int(clock.now)}
    assert jwt.get_unverified_header(second)["kid"] == "ABC123DEFG"
    assert 20 * 60 <= RENEW_S < 60 * 60
    clock.now -= 3600  # a clock that was corrected
    assert tokens.get() != second


def test_expired_provider_token_is_renewed_once_for_concurrent_users() -> None:
    """With a wrong clock, every token is expired, so renewals are limited."""
    clock = FakeClock()
    tokens = ProviderToken(key=KEY, key_id="ABC123DEFG", team_id="DEF123GHIJ", clock=clock)

    first = tokens.get()
    tokens.expire(first)
    second = tokens.get()
    tokens.expire(first)
    tokens.expire(second)
    assert tokens.get() == second != first
    clock.now += FORCED_RENEWAL_INTERVAL_S
    tokens.expire(second)
    assert tokens.get() != second


@given(st.text(max_size=4000), st.text(max_size=80), st.text(max_size=80))
def test_apns_payload_of_any_text_fits(text: str, name: str, title: str) -> None:
    """The text is shortened; all other fields are bounded."""
    text, name, title = (part.encode("utf-8", "replace").decode() for part in (text, name, title))
    number_max = 2**53
    notice = Notice(
        ChatId("c" * 64),
        Seq(number_max),
        number_max,
        UserId("u" * 64),
        name,
        title,
        text,
        number_max,
        number_max,
    )

    encoded = APNS.build_payload(notice)

    assert len(encoded) <= PAYLOAD_BYTES_MAX
    assert json.loads(encoded)["aps"]["thread-id"] == "c" * 64


@pytest.mark.parametrize("char", ["\x01", "😀", "漢", '"'])
def test_apns_payload_of_the_longest_texts_fits_with_an_ellipsis(char: str) -> None:
    """Control characters take six bytes in JSON, others at most four."""
    notice = Notice(ChatId("c"), Seq(1), 1, UserId("u"), char * 80, char * 80, char * 4000, 1, None)

    encoded = APNS.build_payload(notice)

    assert len(encoded) <= PAYLOAD_BYTES_MAX
    assert json.loads(encoded)["aps"]["alert"]["body"] == char * 199 + "…"


def test_apns_payload_without_sound_badge_and_preview() -> None:
    """Fields that the settings exclude are not in the payload."""
    notice = Notice(ChatId("c"), Seq(1), 1, UserId("alice"), "Alice", "", "", 1, None)

    with constants({"chatserver.features.push.providers.apns.SOUND": ""}):
        aps = json.loads(apns_of().build_payload(notice))["aps"]

    assert aps == {"alert": {"title": "Alice", "body": WITHOUT_PREVIEW}, "thread-id": "c"}
