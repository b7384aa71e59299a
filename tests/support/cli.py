"""The command line with other values for named constants: `python -m tests.support.cli`.

A variable named like a constant, such as `chatserver.gateway.transport.connection.FRAGMENTS_MAX`,
replaces its value before the command starts. With the variable in `tests.support.store_calls`, the
process has a failpoint before each call to a store; with that in `tests.support.loop_ticks`, it
measures its event loop. The product itself has no such variables.
"""

from __future__ import annotations

import os

from tests.support import loop_ticks, store_calls
from tests.support.constants import PACKAGES, constants


def run() -> None:
    """Run the command line."""
    with constants({k: v for k, v in os.environ.items() if k.startswith(PACKAGES)}):
        from chatserver.cli.main import main

        if store_calls.CALLERS in os.environ:
            store_calls.add_failpoints()
        if loop_ticks.FOLDER in os.environ:
            loop_ticks.record_ticks()
        main()


if __name__ == "__main__":
    run()
