"""Upper bound on the cost of a self-test. No I/O."""

from __future__ import annotations

from typing import Final

from chatserver.operations.cost.prices import Prices

# Upper bounds: one run, including its retries, uses less.
WRITE_UNITS: Final = 5_000
READ_UNITS: Final = 5_000
PUTS: Final = 200  # number of PUT and LIST requests to S3
GETS: Final = 200


def estimate_usd(prices: Prices) -> float:
    """Return the cost of one run in US dollars, without storage, which is used only for minutes."""
    dynamodb, s3 = prices.dynamodb, prices.s3
    return (
        WRITE_UNITS * dynamodb.write_units_per_million_usd / 1e6
        + READ_UNITS * dynamodb.read_units_per_million_usd / 1e6
        + PUTS * s3.puts_per_thousand_usd / 1e3
        + GETS * s3.gets_per_thousand_usd / 1e3
    )
