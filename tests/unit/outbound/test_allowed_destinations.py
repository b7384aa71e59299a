"""Allowed outbound addresses and URLs: private addresses in any notation are refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import BadRequest
from chatserver.outbound.allowed_destinations import METADATA, Destinations, is_public, parse_url

PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.9",
    "192.0.0.192",
    "192.88.99.1",
    "169.254.170.2",
    "::ffff:168.63.129.16",
    "64:ff9b::a83f:8110",
    "2002:a83f:8110::1",
    "2001:0:4136:e378:8000:63bf:57c0:7eef",
    "fd20:ce::254",
    "224.0.0.1",
    "239.1.2.3",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "64:ff9b::169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]
# The special-purpose registries of IANA, except for ranges that wrap a public IPv4 address.
SPECIAL = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "::/128",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001::/32",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:1::3/128",
    "2001:2::/48",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:30::/28",
    "2001:db8::/32",
    "2002::/16",
    "2620:4f:8000::/48",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "ff00::/8",
]
PUBLIC = ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]


@pytest.mark.parametrize("text", PRIVATE)
def test_private_address_is_refused(text: str) -> None:
    """Loopback, private, link-local, shared, reserved, multicast: in IPv4 or wrapped in IPv6."""
    assert not Destinations().is_allowed(text, 443)


@pytest.mark.parametrize("text", SPECIAL)
def test_range_of_the_special_purpose_registries_is_refused(text: str) -> None:
    """Python's tables depend on its version, so they are not enough."""
    network = ipaddress.ip_network(text)

    assert not is_public(network[0])
    assert not is_public(network[-1])


@pytest.mark.parametrize("text", PUBLIC)
def test_public_address_is_allowed(text: str) -> None:
    """A public address may be called, also through NAT64."""
    assert Destinations().is_allowed(text, 443)


@pytest.mark.parametrize(
    "text", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "1.1.1", "01.1.1.1", "", "localhost"]
)
def test_address_in_a_nonstandard_notation_is_refused(text: str) -> None:
    """The operating system accepts these notations as addresses; this check does not."""
    assert not Destinations().is_allowed(text, 443)


def test_private_address_in_an_allowed_network_is_allowed() -> None:
    """The operator may allow a network; addresses outside it stay refused."""
    opened = Destinations(["127.0.0.2", "fd00::/8"])

    assert opened.is_allowed("127.0.0.2", 8000)
    assert opened.is_allowed("::ffff:127.0.0.2", 8000)
    assert opened.is_allowed("fd00::7", 8000)
    assert not opened.is_allowed("127.0.0.1", 443)
    assert not opened.is_allowed("fe80::7", 443)


@pytest.mark.parametrize("address", sorted(map(str, METADATA)))
def test_metadata_service_is_allowed_only_by_its_own_address(address: str) -> None:
    """An allowed network that contains a metadata service does not allow the service."""
    assert not Destinations().is_allowed(address, 443)
    assert not Destinations(["0.0.0.0/0", "::/0"]).is_allowed(address, 80)
    assert Destinations([address]).is_allowed(address, 80)


def test_public_address_is_allowed_at_listed_ports_only() -> None:
    """Mail servers and databases are out of reach, unless the operator adds a port."""
    assert not any(Destinations().is_allowed("1.1.1.1", port) for port in (0, 22, 25, 80, 6379))
    assert Destinations(ports=[443, 8443]).is_allowed("1.1.1.1", 8443)
    assert not Destinations(ports=[8443]).is_allowed("1.1.1.1", 443)


@given(st.integers(0, 2**32 - 1))
def test_ipv4_address_in_ipv6_is_treated_like_the_ipv4_address(number: int) -> None:
    """IPv6 notation does not bypass the check of an IPv4 address."""
    plain = ipaddress.IPv4Address(number)

    assert is_public(ipaddress.IPv6Address(f"::ffff:{plain}")) == is_public(plain)
    assert is_public(ipaddress.IPv6Address(f"64:ff9b::{plain}")) == is_public(plain)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/x",
        "//example.com/x",
        "file:///etc/passwd",
        "gopher://example.com/",
        "ftp://example.com/",
        "unix:///run/redis.sock",
        "javascript:alert(1)",
        "http://",
        "http:///path",
        "https://user@example.com/",
        "https://user:word@example.com/",
        "https://:word@example.com/",
        "https://example.com:99999/",
        "https://example.com:x/",
        "http://[::1/",
        "https://example.com/" + "a" * 2048,
    ],
)
def test_url_that_is_not_plain_http_is_refused(url: str) -> None:
    """Other schemes, credentials and malformed URLs are refused."""
    with pytest.raises(BadRequest):
        parse_url(url)


def test_plain_url_is_parsed() -> None:
    """A URL may have a host, a port, a path and a query."""
    parsed = parse_url("https://example.com:8443/hook?a=1")

    assert (parsed.host, parsed.port) == ("example.com", 8443)
