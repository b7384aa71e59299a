"""Client addresses of connections, with or without proxies. Pure functions."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Parse IP addresses and CIDR ranges. Raises ValueError."""
    return [ipaddress.ip_network(text.strip(), strict=False) for text in texts]


@functools.lru_cache(maxsize=4096)
def parse_address(text: str) -> Address | None:
    """Parse one X-Forwarded-For entry, ignoring a port; return None if it is invalid."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an address belongs to one of the networks."""
    parsed = parse_address(address) if networks else None
    return parsed is not None and any(parsed in network for network in networks)


def resolve_client_address(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Return the client's address: the right-most address that is not a trusted proxy.

    `forwarded` holds the values of the X-Forwarded-For headers, in order. Addresses to the left of
    the client's address could be forged.
    """
    address = parse_address(peer)
    if address is None:
        return peer
    hops = ",".join(forwarded).split(",") if forwarded else []
    while hops and any(address in network for network in trusted):
        hop = parse_address(hops.pop())
        if hop is None:
            break  # invalid: return the address of the proxy that reported it
        address = hop
    return str(address)


def get_subject(address: str) -> str:
    """Return the rate limit key of an address; an IPv6 /64 network has a single key."""
    parsed = parse_address(address)
    if parsed is None:
        return "0"
    if parsed.version == 6:
        return f"6-{int(parsed) >> 64:016x}"
    return f"4-{int(parsed):08x}"


def get_network(subject: str) -> str:
    """Return the network of a `get_subject` key: a /24 for IPv4, a /64 for IPv6."""
    return subject[:-2] if subject.startswith("4-") else subject


def get_networks(subject: str) -> tuple[str, ...]:
    """Return the networks of a `get_subject` key: a /24 for IPv4; a /64 and its /48 for IPv6."""
    return list_nested_networks(get_network(subject))


def list_nested_networks(network: str) -> tuple[str, ...]:
    """Return a `get_network` key; for an IPv6 /64, also the key of its /48.

    One customer of a hosting provider easily gets all 65,536 /64 networks of a /48.
    """
    is_64 = network.startswith("6-") and not is_wide_network(network)
    return (network, network[:-4]) if is_64 else (network,)


def is_wide_network(network: str) -> bool:
    """Return whether a network from `get_networks` is an IPv6 /48."""
    return network.startswith("6-") and len(network) == len("6-") + 12
