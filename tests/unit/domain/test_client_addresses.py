"""Client addresses: only trusted proxies are believed."""

from __future__ import annotations

import pytest

from chatserver.domain.client_addresses import client_address, parse_networks, subject_of

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
def test_client_address_is_the_right_most_one_that_is_no_proxy_of_ours(
    peer: str, forwarded: list[str], address: str
) -> None:
    """However many proxies of ours there are, and however they write it."""
    assert client_address(peer, forwarded, TRUSTED) == address


def test_client_address_of_a_stranger_ignores_what_it_claims() -> None:
    """A client that connects directly cannot claim another address."""
    assert client_address("203.0.113.5", ["1.2.3.4"], TRUSTED) == "203.0.113.5"
    assert client_address("203.0.113.5", ["1.2.3.4"], []) == "203.0.113.5"


@pytest.mark.parametrize("nonsense", ["", "unknown", "_hidden", "1.2.3", "1.2.3.4.5", "::g", " , "])
def test_client_address_behind_nonsense_is_the_last_one_known(nonsense: str) -> None:
    """An invalid hop ends the search: the address of the proxy that reported it is used."""
    assert client_address("10.0.0.1", [f"1.1.1.1, {nonsense}"], TRUSTED) == "10.0.0.1"
    assert client_address("10.0.0.1", [f"{nonsense}, 10.2.2.2"], TRUSTED) == "10.2.2.2"


def test_subject_of_addresses_tells_customers_apart_not_their_machines() -> None:
    """An IPv6 customer has a whole network of addresses, and one limit."""
    assert subject_of("203.0.113.5") == subject_of("::ffff:203.0.113.5") == "4-cb007105"
    assert subject_of("2001:db8:0:1::1") == subject_of("2001:db8:0:1:ffff::9")
    assert subject_of("2001:db8:0:1::1") != subject_of("2001:db8:0:2::1")
    assert subject_of("not an address") == "0"
