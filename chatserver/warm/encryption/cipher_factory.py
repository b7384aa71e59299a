"""Creates the key ring of a DynamoDB client from the settings."""

from __future__ import annotations

import contextlib

from chatserver.config import Warm
from chatserver.domain.clock import SystemClock
from chatserver.encryption.key_file import KeyFile
from chatserver.encryption.key_ring import KeyRing
from chatserver.encryption.key_wrapping import KeyWrapper, KeyWrappers
from chatserver.encryption.kms import KmsKey
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.encryption.data_keys import DataKeys


def make_key_ring(
    client: DynamoClient, settings: Warm, stack: contextlib.AsyncExitStack
) -> KeyRing | None:
    """Return the tenant's key ring, or None if encryption is off. Does not call KMS.

    Raises:
        ConfigError: the key file cannot be read.
    """
    encryption = settings.encryption
    wrappers: dict[str, KeyWrapper] = {}
    if encryption.key_file is not None:
        wrappers["file"] = KeyFile.read(encryption.key_file)
    if encryption.kms_key_id:
        wrappers["kms"] = KmsKey(encryption, settings, stack)
    if encryption.provider == "none":
        return None
    first = wrappers.pop(encryption.provider)
    return KeyRing(
        tenant=settings.tenant,
        store=DataKeys(client),
        wrappers=KeyWrappers(first, *wrappers.values()),
        cache_s=encryption.cache_s,
        clock=SystemClock(),
    )
