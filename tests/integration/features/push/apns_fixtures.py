"""Fixtures of APNs: a stub service with a certificate that the test process trusts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.servers.apns_service import ApnsService, open_apns_service


@pytest.fixture
async def apns_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ApnsService]:
    async with open_apns_service(tmp_path) as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
        yield made
