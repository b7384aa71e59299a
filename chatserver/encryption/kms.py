"""AWS KMS: wraps data keys, with tenant and version as the encryption context.

The SDK's own retries are off, as in the other adapters; the key ring retries. The client connects
on its first call.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError

from chatserver.aws_session import create_session
from chatserver.config import Encryption, Warm
from chatserver.encryption.key_wrapping import Context, WrappedKey
from chatserver.errors import KEYS_DOWN, Unavailable

OPEN_TIMEOUT_S: Final = 10.0  # timeout for creating the KMS client and finding credentials
CONNECT_TIMEOUT_S: Final = 1.0
CALL_TIMEOUT_S: Final = 2.0


class KmsKey:
    """A key in AWS KMS. It also unwraps data keys that another KMS key wrapped."""

    kind = "kms"

    def __init__(self, settings: Encryption, warm: Warm, stack: contextlib.AsyncExitStack) -> None:
        self._key = settings.kms_key_id
        self._server = "KMS"
        self._warm = warm
        self._stack = stack
        self._opening = asyncio.Lock()
        self._sdk: Any = None

    def __repr__(self) -> str:
        return f"KmsKey({self._key})"

    async def create(self, context: Context) -> tuple[bytes, WrappedKey]:
        """Return a new data key, plain and wrapped (GenerateDataKey)."""
        response = await self._call(
            "generate_data_key",
            KeyId=self._key,
            KeySpec="AES_256",
            EncryptionContext=dict(context),
        )
        return response["Plaintext"], self._parse_wrapped(response)

    async def wrap(self, secret: bytes, context: Context) -> WrappedKey:
        """Return a data key wrapped by this KMS key (Encrypt)."""
        response = await self._call(
            "encrypt", KeyId=self._key, Plaintext=secret, EncryptionContext=dict(context)
        )
        return self._parse_wrapped(response)

    async def unwrap(self, wrapped: WrappedKey, context: Context) -> bytes:
        """Return a plain data key (Decrypt)."""
        response = await self._call(
            "decrypt",
            KeyId=wrapped.by.removeprefix(f"{self.kind}:"),
            CiphertextBlob=wrapped.data,
            EncryptionContext=dict(context),
        )
        secret: bytes = response["Plaintext"]
        return secret

    def _parse_wrapped(self, response: dict[str, Any]) -> WrappedKey:
        return WrappedKey(response["CiphertextBlob"], f"{self.kind}:{response['KeyId']}")

    async def _call(self, operation: str, **request: Any) -> dict[str, Any]:
        timeout_s = OPEN_TIMEOUT_S
        try:
            async with asyncio.timeout(timeout_s):
                sdk = await self._open()
            timeout_s = CALL_TIMEOUT_S
            async with asyncio.timeout(timeout_s):
                response: dict[str, Any] = await getattr(sdk, operation)(**request)
                return response
        except TimeoutError as exc:
            raise Unavailable(
                f"{self._server}: timed out after {timeout_s:g} s", public=KEYS_DOWN
            ) from exc
        except ClientError as exc:
            # Every refusal can be temporary: operators change permissions and key states.
            code = exc.response.get("Error", {}).get("Code", "")
            raise Unavailable(
                f"{self._server}: {exc.operation_name}: {code}", public=KEYS_DOWN
            ) from exc
        except (BotoCoreError, OSError, ValueError) as exc:
            raise Unavailable(f"{self._server}: {type(exc).__name__}", public=KEYS_DOWN) from exc

    async def _open(self) -> Any:
        async with self._opening:
            if self._sdk is None:
                warm = self._warm
                session = create_session(warm.access_key, warm.secret_key, warm.region)
                config = AioConfig(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=CALL_TIMEOUT_S,
                    retries={"total_max_attempts": 1},
                )
                self._sdk = await self._stack.enter_async_context(
                    session.client("kms", config=config)
                )
                self._server = f"KMS at {self._sdk.meta.endpoint_url}"
            return self._sdk
