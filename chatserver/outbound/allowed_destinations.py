"""Addresses and ports that the server may connect to. No I/O.

A URL may come from a user (the endpoint of a push subscription), so it could point to an internal
server: the cloud's metadata service, Redis or the server's own API. The server connects only to
public addresses at the ports in `outbound.ports`, and to the addresses in `outbound.allow_private`
at any port. If an IPv6 address contains an IPv4 address, the IPv4 address is checked.

Metadata services provide credentials. A range in `outbound.allow_private` therefore never includes
them; their addresses must be listed individually.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from yarl import URL

from chatserver.errors import BadRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

URL_CHARS_MAX = 2048
# RFC 6052: IPv6-only networks reach IPv4 servers through this range. The last 32 bits of an address
# are the IPv4 address.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER = [
    ipaddress.ip_network(text)
    for text in (
        # IPv6 transition ranges that no public service needs: IPv4-compatible, local NAT64
        # (RFC 8215) and 6to4; and site-local addresses, which Python treats as public.
        *("::/96", "64:ff9b:1::/48", "2002::/16", "fec0::/10"),
        # Protocol assignments (RFC 6890; in IPv6 with Teredo, benchmarking, ORCHID and AS112) and
        # 6to4 relays, some of which Python treats as public.
        *("192.0.0.0/24", "192.88.99.0/24", "2001::/23"),
        # AS112, which answers reverse lookups of private addresses (RFC 7534, 7535), and AMT relays
        # (RFC 7450).
        *("192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24", "2620:4f:8000::/48"),
        # Discard, dummy, documentation and SRv6 prefixes (RFC 6666, 9780, 9637, 9602).
        *("100::/64", "100:0:0:1::/64", "3fff::/20", "5f00::/16"),
    )
]
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # metadata service of AWS, Google Cloud, Azure, Oracle and most others
        "169.254.169.253",  # AWS: DNS
        "169.254.169.123",  # AWS: time
        "169.254.170.2",  # AWS: credentials of ECS tasks
        "169.254.170.23",  # AWS: credentials of EKS pods
        "169.254.0.23",  # Tencent Cloud
        "168.63.129.16",  # Azure: WireServer, a public address
        "100.100.100.200",  # Alibaba Cloud
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS: credentials of EKS pods
        "fd20:ce::254",  # Google Cloud
        "fd00:42::42",  # Scaleway
    )
)


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Parse addresses and CIDR ranges. Raises ValueError."""
    return [ipaddress.ip_network(text.strip(), strict=False) for text in texts]


def parse_url(url: str) -> URL:
    """Parse a URL. This does not check whether its address is allowed.

    Raises:
        BadRequest: the URL is not http(s), contains a user name or password, or is too long.
    """
    if len(url) > URL_CHARS_MAX:
        raise BadRequest(f"a URL must have at most {URL_CHARS_MAX} characters")
    try:
        parsed = URL(url)
        port = parsed.port
    except ValueError as exc:
        raise BadRequest("invalid URL") from exc
    if parsed.scheme not in ("http", "https") or not parsed.host or port is None:
        raise BadRequest("a URL must begin with http:// or https://, followed by a host")
    if parsed.user is not None or parsed.password is not None:
        raise BadRequest("a URL must not contain a user name or password")
    return parsed


def extract_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address contains, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Return whether an address is a unicast address on the public internet."""
    address = extract_ipv4(address)
    if address in METADATA or any(address in network for network in _NEVER):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


class Destinations:
    """Allowed destinations: `private` networks at any port, and public addresses at `ports`."""

    def __init__(self, private: Iterable[str] = (), ports: Iterable[int] = (443,)) -> None:
        self._private = parse_networks(private)
        self._ports = frozenset(ports)

    def is_private(self, address: Address) -> bool:
        address = extract_ipv4(address)
        return any(
            address in network and (address not in METADATA or network.num_addresses == 1)
            for network in self._private
        )

    def is_allowed(self, text: str, port: int) -> bool:
        """Return whether the server may connect to address `text` at `port`.

        Other spellings of an address, such as ``127.1`` or ``2130706433``, are not allowed.
        """
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return self.is_private(address) or (port in self._ports and is_public(address))
