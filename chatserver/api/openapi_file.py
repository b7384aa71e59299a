"""Generation of ``docs/openapi.json``: writes the OpenAPI document to standard output."""

from __future__ import annotations

import asyncio
import secrets
import sys

from pydantic import SecretStr

from chatserver.api.app import create_litestar
from chatserver.api.container import open_api_parts
from chatserver.api.openapi import encode_document, make_document
from chatserver.config import Auth, Settings
from chatserver.domain.clock import SystemClock
from chatserver.hot.redis.factory import make_hot


async def build_document() -> bytes:
    """Return the document of an API with default settings, without connecting to a store."""
    settings = Settings(auth=Auth(secret=SecretStr(secrets.token_hex())))
    async with open_api_parts(settings, SystemClock(), make_hot(settings.redis)) as parts:
        return encode_document(make_document(create_litestar(settings, parts.clock, parts)))


def main() -> None:
    """Write the document to standard output."""
    sys.stdout.write(asyncio.run(build_document()).decode())


if __name__ == "__main__":
    main()
