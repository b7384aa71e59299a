"""One running `chatserver dev` for all tests of the reference systems.

Starting the processes takes most of the time, so one run serves all tests of a pytest process. Each
test creates its own users and chats.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.reference.support import SETTINGS, Addresses, Server
from tests.support.devrun import dev_run


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server and its stores."""
    with dev_run(tmp_path_factory.mktemp("reference") / "data") as run:
        run.start(env=SETTINGS)
        api, gateway, redis, dynamodb, s3 = run.ports
        addresses = Addresses(api, gateway, redis, dynamodb, s3, run.folder / "settings.env")
        with Server(addresses) as running:
            yield running
        assert run.end() == 0, run.text()
