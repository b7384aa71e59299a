"""Client addresses: only trusted proxies can report them."""

from __future__ import annotations

import pytest

from chatserver.domain.client_addresses import get_subject, parse_networks, resolve_client_address

TRUSTED = parse_networks(["10.0.0.0/8", "192.168.1.7", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.5", [], "203.0.113.5"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1", "203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["203.0.113.5, 10.1.2.3, 192.168.1.7"], "203.0.113.5"),
        ("10.0.0.1", ["10.1.2.3, 10.4.5.6"], "10.1.2.3"),
        ("10.0.0.1", ["203.0.113.5:4711"], "203.0.113.5"),
        ("10.0.0.1", ["[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("fd00::1", ["::ffff:203.0.113.5"], "203.0.113.5"),
    ],
)
def test_client_address_is_the_rightmost_one_that_is_not_trusted(
    peer: str, forwarded: list[str], address: str
) -> None:
    """This holds for any number of trusted proxies and any notation of the addresses."""
    assert resolve_client_address(peer, forwarded, TRUSTED) == address


def test_client_address_from_an_untrusted_peer_ignores_the_header() -> None:
    """A client that connects directly cannot claim another address."""
    assert resolve_client_address("203.0.113.5", ["1.2.3.4"], TRUSTED) == "203.0.113.5"
    assert resolve_client_address("203.0.113.5", ["1.2.3.4"], []) == "203.0.113.5"


@pytest.mark.parametrize("hop", ["", "unknown", "_hidden", "1.2.3", "1.2.3.4.5", "::g", " , "])
def test_client_address_behind_an_invalid_hop_is_the_last_valid_one(hop: str) -> None:
    """The address of the proxy that reported the invalid hop is used."""
    assert resolve_client_address("10.0.0.1", [f"1.1.1.1, {hop}"], TRUSTED) == "10.0.0.1"
    assert resolve_client_address("10.0.0.1", [f"{hop}, 10.2.2.2"], TRUSTED) == "10.2.2.2"


def test_rate_limit_subject_is_an_ipv4_address_or_an_ipv6_network() -> None:
    """An IPv6 customer has a whole network of addresses, and one limit."""
    assert get_subject("203.0.113.5") == get_subject("::ffff:203.0.113.5") == "4-cb007105"
    assert get_subject("2001:db8:0:1::1") == get_subject("2001:db8:0:1:ffff::9")
    assert get_subject("2001:db8:0:1::1") != get_subject("2001:db8:0:2::1")
    assert get_subject("not an address") == "0"
