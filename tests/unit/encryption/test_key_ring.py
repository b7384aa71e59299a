"""The key ring: creation, caching, outages and deletion of data keys."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from chatserver.encryption import key_ring
from chatserver.encryption.body_cipher import DataKey
from chatserver.encryption.key_file import KEYS_MAX, KeyFile, new_line
from chatserver.encryption.key_ring import FAILED_S, RETRY_S, KeyRing, StoredKey
from chatserver.encryption.key_wrapping import Context, KeyWrappers, WrappedKey
from chatserver.errors import ConfigError, Unavailable

CACHE_S = 300.0
PLACE = ("messages", "d-1", "7", "body")


class FakeClock:
    """Time advances only when the test advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Store:
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


class CountedFile(KeyFile):
    """A key file that counts, and that can be down as KMS can."""

    unwraps = 0
    is_down = False

    async def unwrap(self, wrapped: WrappedKey, context: Context) -> bytes:
        self.unwraps += 1
        if self.is_down:
            raise Unavailable("KMS is down")
        return await super().unwrap(wrapped, context)


class World:
    """A key ring on fakes."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.file = CountedFile([bytes(32)])
        self.ring = self.another()

    def another(self, tenant: str = "acme") -> KeyRing:
        """A process of its own on the same store."""
        return KeyRing(
            tenant=tenant,
            store=self.store,
            wrappers=KeyWrappers(self.file),
            cache_s=CACHE_S,
            clock=self.clock,
        )


@pytest.fixture
def world() -> World:
    return World()


async def test_first_use_creates_version_1_once_for_all_processes(world: World) -> None:
    """A process that comes second uses the key of the first one."""
    rings = [world.another() for _ in range(8)]

    keys = await asyncio.gather(*(ring.get_current() for ring in rings for _ in range(3)))

    assert {key.version for key in keys} == {1}
    assert list(world.store.rows) == [1]
    data = keys[0].encrypt(PLACE, b"text")
    assert {key.decrypt(PLACE, data) for key in keys} == {b"text"}


async def test_key_is_unwrapped_once_and_again_after_half_of_its_time(world: World) -> None:
    """Many concurrent uses are one call of KMS."""
    data = (await world.ring.get_current()).encrypt(PLACE, b"text")
    await asyncio.gather(*(world.ring.find_for(data) for _ in range(50)))
    assert world.file.unwraps == 2  # the current one, and version 1

    world.clock.advance(CACHE_S / 2 - 1)
    await asyncio.gather(*(world.ring.get_current() for _ in range(50)))
    assert world.file.unwraps == 2
    world.clock.advance(1)
    await asyncio.gather(*(world.ring.get_current() for _ in range(50)))
    assert world.file.unwraps == 3


async def test_outage_is_bridged_by_the_cache_and_ends_with_it(world: World) -> None:
    """A key is never used for longer than `cache_s`."""
    data = (await world.ring.get_current()).encrypt(PLACE, b"text")
    assert await world.ring.find_for(data) is not None
    world.file.is_down = True

    world.clock.advance(CACHE_S - 1)
    for _ in range(20):
        assert (await world.ring.get_current()).version == 1
    assert world.file.unwraps == 3, "one try, then none for a while"
    world.clock.advance(RETRY_S)
    for _ in range(3):
        with pytest.raises(Unavailable, match="KMS is down"):
            await world.ring.get_current()
        with pytest.raises(Unavailable, match="KMS is down"):
            await world.ring.find_for(data)

    world.file.is_down = False
    world.clock.advance(FAILED_S)
    assert (await world.ring.get_current()).version == 1
    assert await world.ring.find_for(data) is not None


async def test_failure_is_answered_for_a_second_without_a_call(world: World) -> None:
    """Thousands of waiting writes do not each wait for the timeout of KMS."""
    await world.ring.get_current()
    fresh = world.another()
    world.file.is_down = True
    before = world.file.unwraps

    for _ in range(100):
        with pytest.raises(Unavailable):
            await fresh.get_current()

    assert world.file.unwraps == before + 1


async def test_new_version_encrypts_and_older_ones_decrypt(world: World) -> None:
    """Rotation needs no restart."""
    old = (await world.ring.get_current()).encrypt(PLACE, b"old")

    assert (await world.another().create_version()).version == 2
    world.clock.advance(CACHE_S / 2)

    key = await world.ring.get_current()
    assert key.version == 2
    found = await world.ring.find_for(old)
    assert found is not None and found.decrypt(PLACE, old) == b"old"


async def test_deleted_key_is_lost_and_a_new_one_is_created(world: World) -> None:
    """Within `cache_s`; writes go on with a key of their own."""
    data = (await world.ring.get_current()).encrypt(PLACE, b"text")
    assert await world.ring.find_for(data) is not None
    world.store.shred()

    assert await world.another().find_for(data) is None
    world.clock.advance(CACHE_S / 2)
    assert await world.ring.find_for(data) is None
    key = await world.ring.get_current()
    assert key.version == 2
    found = await world.ring.find_for(key.encrypt(PLACE, b"new"))
    assert found is not None


async def test_missing_row_is_not_a_deleted_key(world: World) -> None:
    """A table that was restored without it loses no message: it can be restored again."""
    data = DataKey("acme", 9, bytes(32)).encrypt(PLACE, b"text")

    with pytest.raises(Unavailable, match="has no data key 9"):
        await world.ring.find_for(data)


async def test_row_of_another_tenant_or_version_is_refused(world: World) -> None:
    """The wrapped key is bound to both."""
    await world.ring.get_current()

    with pytest.raises(Unavailable, match="does not unwrap"):
        await world.another("zeta").get_current()
    row = world.store.rows[1]
    world.store.rows[2] = StoredKey(2, row.wrapped, row.created_ms)
    with pytest.raises(Unavailable, match="does not unwrap"):
        await world.another().get_current()


async def test_cache_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently loaded key leaves."""
    monkeypatch.setattr(key_ring, "CACHED_MAX", 2)
    values = []
    for _ in range(4):
        key = (await world.another().create_version()).version
        values.append(key.to_bytes(4, "big"))

    for version in values:
        assert await world.ring.find_for(b"\xfe\x01" + version + bytes(40)) is not None
    before = world.file.unwraps
    await world.ring.find_for(b"\xfe\x01" + values[0] + bytes(40))

    assert world.file.unwraps == before + 1


async def test_rewrap_uses_the_first_key_and_reads_the_others(tmp_path: Path) -> None:
    """A key file with a new first line, then without the old one."""
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
    with pytest.raises(Unavailable, match="has no key"):
        await KeyFile.read(path).unwrap(wrapped, context)
    with pytest.raises(Unavailable, match="does not unwrap"):
        await KeyFile.read(path).unwrap(again, {"tenant": "zeta", "version": "1"})


async def test_key_of_another_provider_names_the_setting() -> None:
    """A deployment that moved to KMS still needs its key file, until `rewrap`."""
    wrappers = KeyWrappers(KeyFile([bytes(32)]))

    with pytest.raises(Unavailable, match=r"wrapped by kms:arn; set encryption\.kms_key_id"):
        await wrappers.unwrap(WrappedKey(b"", "kms:arn"), {})


@pytest.mark.parametrize(
    "content", ["", "# none\n", "short", "not base64!", "\n".join([new_line()] * (KEYS_MAX + 1))]
)
def test_invalid_key_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    """Before anything is encrypted; the error has no part of a key."""
    path = tmp_path / "keys"
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"encryption\.key_file") as failure:
        KeyFile.read(path)

    assert not content or content not in failure.value.message
    with pytest.raises(ConfigError, match="No such file"):
        KeyFile.read(tmp_path / "none")


def test_secrets_are_in_no_representation() -> None:
    """Of files and rings."""
    key = base64.b64decode(new_line())

    assert key.hex() not in repr(KeyFile([key])) and str(key) not in repr(KeyFile([key]))
    assert repr(World().ring) == "KeyRing('acme')"
