"""Which addresses the server may call. Pure functions.

A URL may come from a user (the endpoint of a push subscription) and so may name whatever stands
beside the server: the metadata service of the cloud, Redis, its own API. Only public addresses are
called. An IPv6 address that carries an IPv4 address is judged by what it carries.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from yarl import URL

from chatserver.errors import BadRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

URL_CHARS_MAX = 2048
# RFC 6052: what an IPv6-only network uses to reach IPv4; the last 32 bits are the address.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Ways into IPv4 that nothing public needs: IPv4-compatible, local NAT64 (RFC 8215), Teredo, 6to4,
# and site-local addresses, which Python counts as public.
_NEVER = [
    ipaddress.IPv6Network(text)
    for text in ("::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fec0::/10")
]


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Return networks from addresses and ranges. Raises ValueError."""
    return [ipaddress.ip_network(text.strip(), strict=False) for text in texts]


def parse_url(url: str) -> URL:
    """Return a URL that may be asked for, if its address may.

    Raises:
        BadRequest: it is no http(s) URL, names a user, or is too long.
    """
    if len(url) > URL_CHARS_MAX:
        raise BadRequest(f"a URL has at most {URL_CHARS_MAX} characters")
    try:
        parsed = URL(url)
        port = parsed.port
    except ValueError as exc:
        raise BadRequest("this is not a URL") from exc
    if parsed.scheme not in ("http", "https") or not parsed.host or port is None:
        raise BadRequest("a URL has to begin with http:// or https://, and a host")
    if parsed.user is not None or parsed.password is not None:
        raise BadRequest("a URL must not hold a user name or password")
    return parsed


def carried_address(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: Address) -> bool:
    """Tell whether an address belongs to the public internet, and to one host."""
    address = carried_address(address)
    if isinstance(address, ipaddress.IPv6Address) and (
        address.scope_id is not None or any(address in network for network in _NEVER)
    ):
        return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    """Tell whether an address, spelled as a socket takes it, may be called.

    Anything but the one proper spelling is refused: sockets also take ``127.1``, ``0x7f.1`` and
    ``2130706433`` for 127.0.0.1.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return is_public(address) or any(carried_address(address) in network for network in allowed)
