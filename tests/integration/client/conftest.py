"""A stack for the tests of the SDK that kill processes and delete data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stack import PATIENT, Stack, open_stack


@pytest.fixture(scope="session")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose inboxes keep 20 events, and whose gateways count as down after 2 s."""
    env = {**PATIENT, "CHAT_REDIS_INBOX_MAX": "20", "CHAT_GATEWAY_ONLINE_TTL_S": "2"}
    with open_stack(tmp_path_factory.mktemp("breakable"), fsync="no", env=env) as made:
        yield made
