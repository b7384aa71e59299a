"""The gateway's own connection class behind an echo: no session, no Redis.

What the gateway reaches is a share of what its protocol engine reaches alone. The same class passes
the conformance cases of `tests/integration/gateway/transport/test_autobahn.py`.

    python -m tests.load.servers.echo_server --port 9001
"""

from __future__ import annotations

import argparse
import asyncio

import uvloop

from chatserver import config
from tests.support.servers.echo_gateway import open_echo


async def serve(port: int) -> None:
    """Serve until killed."""
    async with open_echo(config.Gateway(), port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
