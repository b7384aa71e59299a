"""The command line with other values for named constants: `python -m tests.support.cli`.

A variable named like a constant, such as `chatserver.gateway.transport.connection.FRAGMENTS_MAX`,
replaces its value before the command starts. The product itself has no such variables.
"""

from __future__ import annotations

import os

from tests.support.constants import PACKAGES, constants


def run() -> None:
    """Run the command line."""
    with constants({k: v for k, v in os.environ.items() if k.startswith(PACKAGES)}):
        from chatserver.cli.main import main

        main()


if __name__ == "__main__":
    run()
