"""AWS SDK sessions that share the parsed API descriptions of the services.

The SDK parses the description of a service for each session, which takes 20 to 60 ms. A process
opens a session per store.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import aioboto3
from aiobotocore.session import get_session
from pydantic import SecretStr

if TYPE_CHECKING:
    from botocore.loaders import Loader


def create_session(
    access_key: str | None, secret_key: SecretStr | None, region: str | None
) -> aioboto3.Session:
    """Return a session. Without keys, the SDK finds the credentials."""
    core = get_session()
    core.register_component("data_loader", _get_loader())
    return aioboto3.Session(
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key.get_secret_value() if secret_key else None,
        region_name=region,
        botocore_session=core,
    )


@functools.cache
def _get_loader() -> Loader:
    """Return the loader of API descriptions, with a cache that all sessions share."""
    loader: Loader = get_session().get_component("data_loader")
    return loader
