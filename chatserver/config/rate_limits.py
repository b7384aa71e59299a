"""Rate limits: token buckets shared by all processes."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from chatserver.config.section import Section

_RATE = re.compile(r"(\d+(?:\.\d+)?)/s burst (\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimit:
    """A token bucket, written as `50/s burst 500`."""

    per_s: float
    burst: int

    def __str__(self) -> str:
        return f"{self.per_s:g}/s burst {self.burst}"


def _parse_rate(value: object) -> object:
    if not isinstance(value, str):
        return value
    if (match := _RATE.fullmatch(value)) is None:
        raise ValueError("must be a rate such as 50/s burst 500")
    return RateLimit(float(match[1]), int(match[2]))


def _at_least(burst: int) -> AfterValidator:
    def check(rate: RateLimit) -> RateLimit:
        if rate.per_s <= 0 or rate.burst < burst:
            raise ValueError(f"must have a rate above 0 and a burst of at least {burst}")
        return rate

    return AfterValidator(check)


REQUESTS_BURST_MIN = 64  # the highest cost of a request
MEMORY_BURST_BYTES_MIN = 300_000
_Rate = Annotated[RateLimit, BeforeValidator(_parse_rate), _at_least(1)]


class Limits(Section):
    """Rate limits, `<tokens>/s burst <tokens>`: token buckets shared by all processes."""

    sends: _Rate = Field(RateLimit(50, 500), description="Messages sent by one user")
    requests: Annotated[_Rate, _at_least(REQUESTS_BURST_MIN)] = Field(
        RateLimit(50, 500),
        description="HTTP requests and frames other than sends by one user; some cost several "
        "tokens",
    )
    connections: _Rate = Field(
        RateLimit(100, 1000), description="WebSocket handshakes from one address"
    )
    failures: _Rate = Field(
        RateLimit(1, 100),
        description="Rejected `hello` frames and rejected HTTP tokens from one address",
    )
    logins: _Rate = Field(
        RateLimit(0.05, 10),
        description="Wrong passwords for one account from one network, or from one device that "
        "has logged in before",
    )
    guesses: _Rate = Field(
        RateLimit(0.1, 30),
        description="Wrong passwords for one account, in total from all devices that have not "
        "logged in before; above this rate, logins from such devices are delayed",
    )
    entries: _Rate = Field(
        RateLimit(0.5, 60),
        description="Logins and registrations from one network (IPv4 /24, IPv6 /64); logins from "
        "devices that have logged in before are counted per account instead",
    )
    memory: Annotated[_Rate, _at_least(MEMORY_BURST_BYTES_MIN)] = Field(
        RateLimit(180, 4_000_000),
        description="Bytes that one user's requests add to Redis; the default allows 20 MB a day",
    )
    calls: _Rate = Field(RateLimit(200, 2000), description="HTTP requests from one address")
