"""Data keys wrapped by a KMS server: encryption context, outages, and migration from a key file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # no type information
import pytest

from chatserver.config import Encryption
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY, Server, ministack_launch
from chatserver.encryption.key_ring import KeyRing
from chatserver.errors import Unavailable
from tests.integration.warm.encryption.support import SECRET_WORD, Vault, open_vault, text_of
from tests.integration.workers.support import ALICE, BOB, Gateway, make_direct, running
from tests.support.servers.processes import eventually, free_port
from tests.support.servers.tcp_proxy import TcpProxy
from workers.persist.worker import PersistWorker


@pytest.fixture(scope="module")
def kms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A KMS server."""
    folder = tmp_path_factory.mktemp("kms")
    server = Server(ministack_launch(folder, free_port(), service="kms")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def sdk(kms: Server) -> Any:
    return boto3.client(
        "kms",
        endpoint_url=kms.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


@pytest.fixture
def key(sdk: Any) -> str:
    """The ARN of a new KMS key."""
    return str(sdk.create_key()["KeyMetadata"]["Arn"])


@pytest.fixture
async def vault(
    redis_url: str,
    dynamodb: str,
    s3: str,
    tmp_path: Path,
    kms: Server,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Vault]:
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", kms.endpoint)
    async with open_vault(
        redis_url, dynamodb, s3, tmp_path, provider="kms", kms_key_id=key
    ) as made:
        yield made


async def test_data_key_is_wrapped_by_kms_with_tenant_and_version(
    vault: Vault, sdk: Any, key: str
) -> None:
    """KMS decrypts the key only with this encryption context."""
    async with vault.process() as process:
        await process.write(1)
    async with vault.process() as other:
        assert await other.bodies(process.chat) == [text_of(1)]

    assert await vault.find_word() == []
    stored = await vault.keys().find_newest()
    assert stored is not None and stored.wrapped is not None
    assert stored.wrapped.by == f"kms:{key}"
    request = {"KeyId": key, "CiphertextBlob": stored.wrapped.data}
    right = {"tenant": "-", "version": "1"}
    assert len(sdk.decrypt(**request, EncryptionContext=right)["Plaintext"]) == 32
    for wrong in ({**right, "version": "2"}, {**right, "tenant": "acme"}, {}):
        with pytest.raises(sdk.exceptions.InvalidCiphertextException):
            sdk.decrypt(**request, EncryptionContext=wrong)


async def test_messages_are_accepted_without_kms_and_stored_after_its_restart(
    vault: Vault, kms: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The persist worker retries. Nothing is lost or stored as plain text."""
    async with TcpProxy(kms.launch.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", f"http://127.0.0.1:{proxy.port}")
        proxy.is_refusing = True
        async with vault.process() as process:
            container = process.container
            audience = await make_direct(container, ALICE, BOB)
            gateway = Gateway(container.hot)
            worker = PersistWorker(container, 0, "test")
            async with running(worker.run()) as task:
                for number in range(5):
                    await gateway.send(
                        audience, *(f"{SECRET_WORD} {number}-{n}" for n in range(20))
                    )
                made = proxy.connections_made
                await eventually(lambda: proxy.connections_made > made + 1, what="another attempt")
                assert not task.done()
                assert await container.messages.list_after(audience.chat, 0, 10) == []

                proxy.is_refusing = False
                last = await eventually(
                    lambda: container.messages.list_after(audience.chat, 99, 1),
                    what="all messages are stored",
                )
        assert last[0].body == f"{SECRET_WORD} 4-19"
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", kms.endpoint)
    async with vault.process() as process:
        found = await process.read(audience.chat)
        assert [each.body for each in found] == [
            f"{SECRET_WORD} {number}-{n}" for number in range(5) for n in range(20)
        ]
    assert await vault.find_word() == []


async def test_disabled_kms_key_makes_messages_unavailable(
    vault: Vault, sdk: Any, key: str
) -> None:
    """Reads fail until the key is enabled again. Messages do not count as deleted."""
    async with vault.process() as process:
        await process.write(1)
    sdk.disable_key(KeyId=key)
    async with vault.process() as other:
        with pytest.raises(Unavailable, match="KMS"):
            await other.read(process.chat)
    sdk.enable_key(KeyId=key)

    async with vault.process() as again:
        assert await again.bodies(process.chat) == [text_of(1)]


async def test_data_keys_wrapped_by_a_file_are_rewrapped_by_kms(
    vault: Vault, key: str, tmp_path: Path
) -> None:
    """After the rewrap, the deployment does not need the key file."""
    by_file = Encryption(provider="file", key_file=tmp_path / "keys")
    async with vault.process(by_file) as process:
        await process.write(1)
    both = vault.encryption.model_copy(update={"key_file": tmp_path / "keys"})
    async with vault.process(both) as other_process:
        ring = other_process.container.dynamodb.cipher
        assert isinstance(ring, KeyRing)
        (stored,) = await vault.keys().list_all()
        assert stored.wrapped is not None and stored.wrapped.by.startswith("file:")
        again = await ring.rewrap(stored)
        assert await vault.keys().replace(1, stored.wrapped, again)
        assert not await vault.keys().replace(1, stored.wrapped, again), "it was already replaced"

    async with vault.process() as third_process:
        assert await third_process.bodies(process.chat) == [text_of(1)]
