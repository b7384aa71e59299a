"""The S3 client, without S3."""

from __future__ import annotations

import pytest

from chatserver.cold.client import open_s3
from chatserver.config import Cold
from chatserver.errors import ConfigError


async def test_signing_without_credentials_names_the_missing_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signing a form or a link without credentials fails with a clear error."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    async with open_s3(Cold()) as store:
        with pytest.raises(ConfigError, match="CHAT_COLD_ACCESS_KEY"):
            await store.sign_upload("uploads/1", {"Content-Type": "text/plain"}, 1, 60)
        with pytest.raises(ConfigError, match="CHAT_COLD_ACCESS_KEY"):
            await store.sign_link("attachments/1", {}, 60)
