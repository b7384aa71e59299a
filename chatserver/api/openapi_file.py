"""Generation of ``docs/openapi.json``: writes the OpenAPI document to standard output."""

from __future__ import annotations

import asyncio
import secrets
import sys

from pydantic import SecretStr

from chatserver.api.app import create_litestar
from chatserver.api.openapi import encode_document, make_document
from chatserver.config import Auth, Settings
from chatserver.container.storage import open_storage_container
from chatserver.domain.clock import SystemClock
from chatserver.hot.redis.factory import make_hot


async def build_document() -> bytes:
    """Return the OpenAPI document for the default settings; does not connect to Redis."""
    settings = Settings(auth=Auth(secret=SecretStr(secrets.token_hex())))
    hot = make_hot(settings.redis)
    async with open_storage_container(
        role="api", settings=settings, clock=SystemClock(), hot=hot
    ) as container:
        return encode_document(make_document(create_litestar(settings, container.clock, container)))


def main() -> None:
    sys.stdout.write(asyncio.run(build_document()).decode())


if __name__ == "__main__":
    main()
