"""The key ring: creation, caching, outages and deletion of data keys."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from chatserver.encryption import key_ring
from chatserver.encryption.key_file import KEYS_MAX, KeyFile, new_line
from chatserver.encryption.key_ring import FAILED_S, RETRY_S, KeyRing, StoredKey
from chatserver.encryption.key_wrapping import Context, KeyWrappers, WrappedKey
from chatserver.encryption.value_cipher import DataKey
from chatserver.errors import ConfigError, Unavailable
from tests.support.fake_clocks import FakeClock

CACHE_S = 300.0
LOCATION = ("messages", "d-1", "7", "body")


class FakeStore:
    """Rows of data keys in memory."""

    def __init__(self) -> None:
        self.rows: dict[int, StoredKey] = {}
        self.reads = 0
        self.is_down = False

    def _read(self) -> None:
        self.reads += 1
        if self.is_down:
            raise Unavailable("the store is down")

    async def find(self, version: int) -> StoredKey | None:
        self._read()
        await asyncio.sleep(0)
        return self.rows.get(version)

    async def find_newest(self) -> StoredKey | None:
        self._read()
        await asyncio.sleep(0)
        return self.rows[max(self.rows)] if self.rows else None

    async def create(self, key: StoredKey) -> bool:
        if key.version in self.rows:
            return False
        self.rows[key.version] = key
        return True

    def shred(self) -> None:
        self.rows = {
            version: StoredKey(version, None, row.created_ms, 1)
            for version, row in self.rows.items()
        }


class FaultyKeyFile(KeyFile):
    """A key file that counts its calls and can be unavailable, like KMS."""

    unwraps = 0
    is_down = False

    async def unwrap(self, wrapped: WrappedKey, context: Context) -> bytes:
        self.unwraps += 1
        if self.is_down:
            raise Unavailable("KMS is down")
        return await super().unwrap(wrapped, context)


class KeyRingScenario:
    """A key ring with a fake clock, store and key file."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = FakeStore()
        self.file = FaultyKeyFile([bytes(32)])
        self.ring = self.new_ring()

    def new_ring(self, tenant: str = "acme") -> KeyRing:
        """Return the key ring of another process with the same store."""
        return KeyRing(
            tenant=tenant,
            store=self.store,
            wrappers=KeyWrappers(self.file),
            cache_s=CACHE_S,
            clock=self.clock,
        )


@pytest.fixture
def scenario() -> KeyRingScenario:
    return KeyRingScenario()


async def test_key_ring_with_another_key_file_creates_no_version(scenario: KeyRingScenario) -> None:
    """The other processes could not decrypt what is encrypted with that version."""
    await scenario.ring.create_version()
    scenario.file = FaultyKeyFile([b"x" * 32])

    with pytest.raises(Unavailable):
        await scenario.new_ring().create_version()

    assert list(scenario.store.rows) == [1]


async def test_first_use_creates_version_1_once_for_all_processes(
    scenario: KeyRingScenario,
) -> None:
    """Concurrent processes all use the key of the first one."""
    rings = [scenario.new_ring() for _ in range(8)]

    keys = await asyncio.gather(*(ring.get_current() for ring in rings for _ in range(3)))

    assert {key.version for key in keys} == {1}
    assert list(scenario.store.rows) == [1]
    data = keys[0].encrypt(LOCATION, b"text")
    assert {key.decrypt(LOCATION, data) for key in keys} == {b"text"}


async def test_key_is_unwrapped_once_and_again_after_half_the_cache_time(
    scenario: KeyRingScenario,
) -> None:
    """Many concurrent uses cause one call of KMS."""
    data = (await scenario.ring.get_current()).encrypt(LOCATION, b"text")
    await asyncio.gather(*(scenario.ring.find_for(data) for _ in range(50)))
    assert scenario.file.unwraps == 2  # the current one, and version 1

    scenario.clock.advance(CACHE_S / 2 - 1)
    await asyncio.gather(*(scenario.ring.get_current() for _ in range(50)))
    assert scenario.file.unwraps == 2
    scenario.clock.advance(1)
    await asyncio.gather(*(scenario.ring.get_current() for _ in range(50)))
    assert scenario.file.unwraps == 3


async def test_cached_key_is_used_in_an_outage_until_it_expires(scenario: KeyRingScenario) -> None:
    """A key is never used for longer than `cache_s`."""
    data = (await scenario.ring.get_current()).encrypt(LOCATION, b"text")
    assert await scenario.ring.find_for(data) is not None
    scenario.file.is_down = True

    scenario.clock.advance(CACHE_S - 1)
    for _ in range(20):
        assert (await scenario.ring.get_current()).version == 1
    assert scenario.file.unwraps == 3, "one retry, then none until RETRY_S has passed"
    scenario.clock.advance(RETRY_S)
    for _ in range(3):
        with pytest.raises(Unavailable, match="KMS is down"):
            await scenario.ring.get_current()
        with pytest.raises(Unavailable, match="KMS is down"):
            await scenario.ring.find_for(data)

    scenario.file.is_down = False
    scenario.clock.advance(FAILED_S)
    assert (await scenario.ring.get_current()).version == 1
    assert await scenario.ring.find_for(data) is not None


async def test_failure_is_cached_for_a_second(scenario: KeyRingScenario) -> None:
    """Thousands of waiting writes do not each wait for the timeout of KMS."""
    await scenario.ring.get_current()
    fresh = scenario.new_ring()
    scenario.file.is_down = True
    before = scenario.file.unwraps

    for _ in range(100):
        with pytest.raises(Unavailable):
            await fresh.get_current()

    assert scenario.file.unwraps == before + 1


async def test_new_version_encrypts_and_older_ones_decrypt(scenario: KeyRingScenario) -> None:
    """Rotation needs no restart."""
    old = (await scenario.ring.get_current()).encrypt(LOCATION, b"old")

    assert (await scenario.new_ring().create_version()).version == 2
    scenario.clock.advance(CACHE_S / 2)

    key = await scenario.ring.get_current()
    assert key.version == 2
    found = await scenario.ring.find_for(old)
    assert found is not None and found.decrypt(LOCATION, old) == b"old"


async def test_deleted_key_is_lost_and_a_new_one_is_created(scenario: KeyRingScenario) -> None:
    """The deletion takes effect within `cache_s`; writes continue with a new key."""
    data = (await scenario.ring.get_current()).encrypt(LOCATION, b"text")
    assert await scenario.ring.find_for(data) is not None
    scenario.store.shred()

    assert await scenario.new_ring().find_for(data) is None
    scenario.clock.advance(CACHE_S / 2)
    assert await scenario.ring.find_for(data) is None
    key = await scenario.ring.get_current()
    assert key.version == 2
    found = await scenario.ring.find_for(key.encrypt(LOCATION, b"new"))
    assert found is not None


async def test_missing_row_is_not_a_deleted_key(scenario: KeyRingScenario) -> None:
    """If a table was restored without the row, the row can still be restored."""
    data = DataKey("acme", 9, bytes(32)).encrypt(LOCATION, b"text")

    with pytest.raises(Unavailable, match="data key 9 is missing"):
        await scenario.ring.find_for(data)


async def test_row_of_another_tenant_or_version_is_refused(scenario: KeyRingScenario) -> None:
    """The wrapped key is bound to both."""
    await scenario.ring.get_current()

    with pytest.raises(Unavailable, match="cannot unwrap"):
        await scenario.new_ring("zeta").get_current()
    row = scenario.store.rows[1]
    scenario.store.rows[2] = StoredKey(2, row.wrapped, row.created_ms)
    with pytest.raises(Unavailable, match="cannot unwrap"):
        await scenario.new_ring().get_current()


async def test_number_of_cached_keys_is_limited(
    scenario: KeyRingScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently loaded key is evicted."""
    monkeypatch.setattr(key_ring, "CACHED_MAX", 2)
    values = []
    for _ in range(4):
        key = (await scenario.new_ring().create_version()).version
        values.append(key.to_bytes(4, "big"))

    for version in values:
        assert await scenario.ring.find_for(b"\xfe\x01" + version + bytes(40)) is not None
    before = scenario.file.unwraps
    await scenario.ring.find_for(b"\xfe\x01" + values[0] + bytes(40))

    assert scenario.file.unwraps == before + 1


async def test_rewrap_uses_the_first_key_and_reads_the_others(tmp_path: Path) -> None:
    """A new first line is added to the file, and the old line is removed after the rewrap."""
    old, new = new_line(), new_line()
    path = tmp_path / "keys"
    context = {"tenant": "acme", "version": "1"}
    path.write_text(f"# made today\n{old}\n")
    secret, wrapped = await KeyFile.read(path).create(context)
    path.write_text(f"{new}\n{old}\n")

    again = await KeyWrappers(KeyFile.read(path)).rewrap(wrapped, context)

    assert again.by != wrapped.by and secret not in again.data
    path.write_text(new)
    assert await KeyFile.read(path).unwrap(again, context) == secret
    with pytest.raises(Unavailable, match="which wraps a data key, is missing"):
        await KeyFile.read(path).unwrap(wrapped, context)
    with pytest.raises(Unavailable, match="cannot unwrap"):
        await KeyFile.read(path).unwrap(again, {"tenant": "zeta", "version": "1"})


async def test_error_for_key_of_another_provider_names_the_setting() -> None:
    """A deployment that moved to KMS still needs its key file, until `rewrap`."""
    wrappers = KeyWrappers(KeyFile([bytes(32)]))

    with pytest.raises(Unavailable, match=r"wrapped by kms:arn; set encryption\.kms_key_id"):
        await wrappers.unwrap(WrappedKey(b"", "kms:arn"), {})


@pytest.mark.parametrize(
    "content", ["", "# none\n", "short", "not base64!", "\n".join([new_line()] * (KEYS_MAX + 1))]
)
def test_invalid_key_file_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    """The error comes before any encryption and contains no part of a key."""
    path = tmp_path / "keys"
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"encryption\.key_file") as failure:
        KeyFile.read(path)

    assert not content or content not in failure.value.message
    with pytest.raises(ConfigError, match="No such file"):
        KeyFile.read(tmp_path / "none")


def test_key_files_and_rings_have_no_representation_with_secrets() -> None:
    key = base64.b64decode(new_line())

    assert key.hex() not in repr(KeyFile([key])) and str(key) not in repr(KeyFile([key]))
    assert repr(KeyRingScenario().ring) == "KeyRing('acme')"
