"""Tests of chatserver.auth.device_tokens."""

from __future__ import annotations

from chatserver.auth.device_tokens import DEVICE_TOKEN_S, DeviceTokens
from chatserver.config import Auth
from chatserver.domain.ids import UserId
from tests.support.fake_clocks import FakeClock

ZOE, YAN = UserId("zoe"), UserId("yan")


def tokens_of(secret: str, clock: FakeClock) -> DeviceTokens:
    """Return device tokens signed with a secret."""
    return DeviceTokens(Auth.model_validate({"secret": secret}), clock)


def test_token_identifies_its_device_until_it_expires() -> None:
    """A renewed token has the same device; an expired token has none."""
    clock = FakeClock()
    tokens = tokens_of("s" * 32, clock)
    first = tokens.make(ZOE)
    device = tokens.find_device([first], ZOE)
    renewed = tokens.make(ZOE, device)

    assert device is not None
    assert tokens.find_device(["x", renewed], ZOE) == device
    assert tokens.find_device([tokens.make(ZOE)], ZOE) != device
    clock.advance(DEVICE_TOKEN_S)
    assert tokens.find_device([first], ZOE) is None


def test_token_is_bound_to_its_account_and_secret() -> None:
    """A token of another account or secret, or a changed one, identifies no device."""
    clock = FakeClock()
    tokens = tokens_of("s" * 32, clock)
    token = tokens.make(ZOE)
    user, device, issued, mac = token.split(".")

    invalid = [
        "",
        "x" * 300,
        f"yan.{device}.{issued}.{mac}",
        f"{user}.{device}.{int(issued) + 1}.{mac}",
        f"{user}.{device[::-1]}.{issued}.{mac}",
        tokens_of("t" * 32, clock).make(ZOE),
    ]
    assert tokens.find_device(invalid, ZOE) is None
    assert tokens.find_device([token], YAN) is None
    assert tokens.find_device([tokens.make(YAN)], ZOE) is None
