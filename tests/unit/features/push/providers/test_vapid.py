"""VAPID keys: matching pairs, checked settings, and reused signatures."""

from __future__ import annotations

import pytest
from py_vapid import Vapid02  # type: ignore[import-untyped]  # it has no types

from chatserver.errors import ConfigError
from chatserver.features.push.providers.vapid import (
    RENEW_S,
    VapidSigner,
    check_vapid_pair,
    derive_vapid_pair,
    make_vapid_pair,
)
from tests.support.fake_clocks import FakeClock

SUBJECT = "mailto:ops@chat.example"


def test_vapid_pair_of_a_secret_is_deterministic() -> None:
    """Development needs no key file; other secrets have other pairs."""
    assert derive_vapid_pair("s") == derive_vapid_pair("s") != derive_vapid_pair("t")
    check_vapid_pair(*derive_vapid_pair("s"), SUBJECT)
    check_vapid_pair(*make_vapid_pair(), SUBJECT)


def test_mismatched_vapid_settings_are_refused_together() -> None:
    """A worker that cannot sign does not start, and reports all invalid settings."""
    private, _ = make_vapid_pair()

    with pytest.raises(ConfigError) as error:
        check_vapid_pair(private, make_vapid_pair()[1], "ops@chat.example")

    assert len(error.value.problems) == 2
    with pytest.raises(ConfigError, match="vapid_private"):
        check_vapid_pair("no key", "", SUBJECT)
    assert private not in str(error.value)


def test_vapid_signature_is_per_origin_and_renewed() -> None:
    """All endpoints of a service share a signature, which is renewed every half day."""
    clock = FakeClock()
    signer = VapidSigner(make_vapid_pair()[0], SUBJECT, clock)

    first = signer.authorize("https://push.example/a?secret")
    assert Vapid02.verify(first)
    assert signer.authorize("https://push.example/b") == first
    assert signer.authorize("https://other.example/b") != first
    clock.now += RENEW_S + 1
    assert signer.authorize("https://push.example/a") != first
