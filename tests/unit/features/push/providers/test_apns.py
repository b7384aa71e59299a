"""APNs: settings that belong together, a token of 40 minutes, a payload that always fits."""

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

from chatserver.config import Notify, Settings
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import ConfigError
from chatserver.features.push.model import Notice
from chatserver.features.push.providers.apns import (
    FORCED_S,
    PAYLOAD_BYTES_MAX,
    RENEW_S,
    WITHOUT_PREVIEW,
    Apns,
    ProviderToken,
    check_apns,
    is_apns_wanted,
)
from chatserver.features.push.providers.registry import check_providers
from chatserver.outbound.http2_client import Http2
from tests.support.constants import constants
from workers.runner import run_workers

KEY = ec.generate_private_key(ec.SECP256R1())


def pem_of(key: Any, encryption: Any = None) -> str:
    """A key as files have it."""
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    return pem.decode()


SETTINGS = {
    "apns_key": pem_of(KEY),
    "apns_key_id": "ABC123DEFG",
    "apns_team_id": "DEF123GHIJ",
    "apns_topic": "com.example.chat",
}


class Clock:
    """A clock that a test sets."""

    now = 1_900_000_000.0

    def time(self) -> float:
        return self.now

    monotonic = time


def apns_of(**changes: Any) -> Apns:
    """A provider that sends nowhere."""
    settings = Notify(**(SETTINGS | changes))
    return Apns(cast(Http2, None), settings, SystemClock())


with constants({"chatserver.features.push.providers.apns.SOUND": "s" * 64}):
    APNS = apns_of()


def test_apns_settings_are_taken_whole_or_not_at_all() -> None:
    """Without any there is no APNs; a key may have its line breaks spelled out."""
    assert not is_apns_wanted(Notify())
    check_providers(Notify())
    check_apns(Notify(**SETTINGS))
    check_apns(Notify(**{**SETTINGS, "apns_key": pem_of(KEY).replace("\n", "\\n")}))


@pytest.mark.parametrize("missing", list(SETTINGS))
async def test_apns_setting_that_is_missing_is_named_before_a_worker_starts(missing: str) -> None:
    """Nothing was opened by then: neither Redis nor a connection."""
    notify = Notify(**{**SETTINGS, missing: ""})

    with pytest.raises(ConfigError, match=rf"notify\.{missing}: is missing") as refused:
        await run_workers(Settings(notify=notify), ["notify"])

    assert len(refused.value.problems) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("apns_key", "no key"),
        ("apns_key", pem_of(ec.generate_private_key(ec.SECP384R1()))),
        ("apns_key", pem_of(rsa.generate_private_key(65537, 2048))),
        ("apns_key", pem_of(KEY, BestAvailableEncryption(b"hush"))),
        ("apns_key_id", "ABC123DEF"),
        ("apns_team_id", "abc123defg"),
        ("apns_topic", "com example"),
        ("apns_url", "http://api.push.apple.com"),
        ("apns_url", "https://api.push.apple.com/3"),
    ],
)
def test_apns_setting_that_cannot_be_is_refused_without_being_shown(name: str, value: str) -> None:
    """One of them is a private key."""
    with pytest.raises(ConfigError, match=rf"notify\.{name}: ") as refused:
        check_apns(Notify(**{**SETTINGS, name: value}))

    assert len(refused.value.problems) == 1
    assert not name.endswith("key") or value not in str(refused.value)


def test_push_settings_that_are_wrong_are_refused_together() -> None:
    """All invalid settings are reported at once."""
    with pytest.raises(ConfigError) as refused:
        check_providers(Notify(vapid_private="x", fcm_account="{}", apns_topic="a b"))

    shown = str(refused.value)
    assert all(name in shown for name in ("vapid_private", "fcm_account", "apns_key", "apns_topic"))


def test_provider_token_is_used_for_forty_minutes_and_then_renewed() -> None:
    """Apple wants none that is older than an hour, and no other within 20 minutes."""
    clock = Clock()
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
    clock.now -= 3600  # a clock that was set right
    assert tokens.get() != second


def test_provider_token_that_expired_is_renewed_for_all_who_used_it_and_not_again() -> None:
    """A wrong clock makes every token an expired one."""
    clock = Clock()
    tokens = ProviderToken(key=KEY, key_id="ABC123DEFG", team_id="DEF123GHIJ", clock=clock)

    first = tokens.get()
    tokens.expire(first)
    second = tokens.get()
    tokens.expire(first)
    tokens.expire(second)
    assert tokens.get() == second != first
    clock.now += FORCED_S
    tokens.expire(second)
    assert tokens.get() != second


@given(st.text(max_size=4000), st.text(max_size=80), st.text(max_size=80))
def test_apns_payload_of_any_text_fits(text: str, name: str, title: str) -> None:
    """The text is shortened; what stands beside it is bounded."""
    text, name, title = (part.encode("utf-8", "replace").decode() for part in (text, name, title))
    most = 2**53
    notice = Notice(
        ChatId("c" * 64), Seq(most), most, UserId("u" * 64), name, title, text, most, most
    )

    encoded = APNS.payload_of(notice)

    assert len(encoded) <= PAYLOAD_BYTES_MAX
    assert json.loads(encoded)["aps"]["thread-id"] == "c" * 64


@pytest.mark.parametrize("char", ["\x01", "😀", "漢", '"'])
def test_apns_payload_of_the_longest_texts_fits_and_shows_what_is_cut_off(char: str) -> None:
    """Control characters take six bytes in JSON, others at most four."""
    notice = Notice(ChatId("c"), Seq(1), 1, UserId("u"), char * 80, char * 80, char * 4000, 1, None)

    encoded = APNS.payload_of(notice)

    assert len(encoded) <= PAYLOAD_BYTES_MAX
    assert json.loads(encoded)["aps"]["alert"]["body"] == char * 199 + "…"


def test_apns_payload_has_no_sound_no_badge_and_no_text_where_none_is_wanted() -> None:
    """Whatever the settings exclude is not in the payload."""
    notice = Notice(ChatId("c"), Seq(1), 1, UserId("alice"), "Alice", "", "", 1, None)

    with constants({"chatserver.features.push.providers.apns.SOUND": ""}):
        aps = json.loads(apns_of().payload_of(notice))["aps"]

    assert aps == {"alert": {"title": "Alice", "body": WITHOUT_PREVIEW}, "thread-id": "c"}
