"""Encrypted values: valid only in their item, without a trace of text or key."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.encryption.value_cipher import (
    KEY_BYTES,
    MAGIC,
    OVERHEAD_BYTES,
    DataKey,
    build_header,
    get_key_version,
    is_encrypted,
)
from chatserver.errors import CorruptData

SECRET = bytes(range(KEY_BYTES))
KEY = DataKey("acme", 3, SECRET)
LOCATION = ("messages", "d-1", "7", "body")
TEXT = b"a text that nobody else may read"


def nonce_of(data: bytes) -> bytes:
    return data[len(build_header(3)) :][:12]


@given(st.binary(max_size=500), st.lists(st.text(), min_size=1, max_size=4))
def test_value_decrypts_to_its_text(text: bytes, parts: list[str]) -> None:
    """This holds for any length and any location."""
    data = KEY.encrypt(tuple(parts), text)

    assert KEY.decrypt(tuple(parts), data) == text
    assert len(data) == len(text) + OVERHEAD_BYTES


def test_value_begins_with_its_format_and_key_version() -> None:
    """The format is fixed, because values are stored for years."""
    data = KEY.encrypt(LOCATION, TEXT)

    assert data.startswith(b"\xfe\x01\x00\x00\x00\x03")
    assert get_key_version(data) == 3
    assert TEXT not in data
    assert data == KEY.encrypt(LOCATION, TEXT), (
        "encryption must be deterministic, so that repeated writes are equal"
    )
    assert (
        data.hex() == "fe0100000003"
        "af3782c8ece05347aa863de48880e79264eeff99724bb263a35d6fee527b797cddba827546c49b46c7563c87ba6c4f6bd18e90b43ac90100b3b2051e"
    )


@given(st.text(min_size=1))
def test_text_is_never_detected_as_an_encrypted_value(text: str) -> None:
    """No UTF-8 text begins with the magic byte, so old plain objects stay readable."""
    assert not is_encrypted(text.encode())
    assert is_encrypted(KEY.encrypt(LOCATION, text.encode()))


@pytest.mark.parametrize(
    "location",
    [
        ("messages", "d-1", "8", "body"),
        ("messages", "d-2", "7", "body"),
        ("messages", "d-1", "7", "sum"),
        ("social", "d-1", "7", "body"),
        ("messages", "d-17", "", "body"),
        ("messages", "d-1", "7", "body", ""),
    ],
)
def test_value_is_refused_at_another_location(location: tuple[str, ...]) -> None:
    """A value copied to another item cannot be decrypted there."""
    data = KEY.encrypt(LOCATION, TEXT)

    with pytest.raises(CorruptData, match="cannot be decrypted"):
        KEY.decrypt(location, data)


@pytest.mark.parametrize(
    "other",
    [
        DataKey("zeta", 3, SECRET),
        DataKey("acme", 4, SECRET),
        DataKey("acme", 3, bytes(KEY_BYTES)),
    ],
    ids=["tenant", "version", "secret"],
)
def test_value_is_refused_with_another_key_or_tenant(other: DataKey) -> None:
    """The tenant is authenticated, even if two tenants have the same secret."""
    data = other.encrypt(LOCATION, TEXT)
    if other.version == 4:
        data = build_header(3) + data[len(build_header(3)) :]

    with pytest.raises(CorruptData):
        KEY.decrypt(LOCATION, data)


def test_value_with_any_changed_byte_is_refused() -> None:
    """Header, nonce, text and tag are all authenticated."""
    data = KEY.encrypt(LOCATION, TEXT)

    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(CorruptData):
            KEY.decrypt(LOCATION, changed)
    for invalid in (data[:-1], data[: OVERHEAD_BYTES - 1], data[:8], b"", data + b"x"):
        with pytest.raises(CorruptData):
            KEY.decrypt(LOCATION, invalid)


@pytest.mark.parametrize("data", [b"", MAGIC, b"text", b"\xfe\x02" + bytes(60), MAGIC + bytes(20)])
def test_unknown_format_is_refused(data: bytes) -> None:
    """A value written by a later release is not decoded incorrectly."""
    with pytest.raises(CorruptData, match="unknown format"):
        get_key_version(data)


def test_nonces_of_different_values_differ() -> None:
    """Location, text and key all change the nonce: no two values share key and nonce."""
    values = {
        KEY.encrypt((*LOCATION[:2], str(location), "body"), f"text {text}".encode())
        for location in range(150)
        for text in range(150)
    }

    assert len({nonce_of(value) for value in values}) == len(values) == 150 * 150
    other = DataKey("acme", 3, bytes(KEY_BYTES))
    assert nonce_of(other.encrypt(LOCATION, TEXT)) != nonce_of(KEY.encrypt(LOCATION, TEXT))


def test_key_has_no_representation_with_its_secret() -> None:
    """Logs and tracebacks show only its version, and it cannot be serialized."""
    for text in (repr(KEY), str(KEY), f"{KEY}"):
        assert text == "DataKey(version=3)"
    with pytest.raises(TypeError):
        pickle.dumps(KEY)


def test_secret_of_another_length_is_refused() -> None:
    """The key that KMS returns is checked."""
    with pytest.raises(CorruptData, match="must have 32 bytes"):
        DataKey("acme", 1, b"short")
