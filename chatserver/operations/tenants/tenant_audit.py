"""Audit of a deleted tenant: searches all tiers for its items, objects and keys.

The audit lists at most about `LEFT_MAX` items, objects or keys per store. It checks the tenant's
own stores, and searches the items and objects of all other tenants for:

- keys and strings that begin with ``<tenant>/`` or contain ``tenant=<tenant>/``, as all of the
  tenant's keys do
- the byte strings in `texts`, in items and, with `has_contents`, in decompressed objects. This
  finds a segment or file that contains messages from several tenants
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import zstandard

from chatserver.cold.client import open_s3
from chatserver.cold.tenant_objects import TenantObjects
from chatserver.errors import BadRequest, NotFound
from chatserver.operations.tenants.tenant_list import get_tenant, open_all_items
from chatserver.operations.tenants.tenant_stores import OpenTenant, Report, get_tenant_settings
from chatserver.warm.dynamo.tenancy import SEPARATOR
from chatserver.warm.schema.tables import TABLES
from chatserver.warm.tenant_states import PARTITION

LEFT_MAX: Final = 100  # maximum remaining items, objects or keys reported per store
TEXTS_MAX: Final = 1000
TEXT_BYTES_MIN: Final = 3
OBJECT_BYTES_MAX: Final = 256 * 2**20
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class StoreAudit(msgspec.Struct):
    """Result for one store: the number of items checked, and the first items that are left."""

    store: str
    checked: int
    left: list[str]


async def audit_tenant(
    work: OpenTenant, *, texts: Sequence[bytes], has_contents: bool, report: Report
) -> list[StoreAudit]:
    """Search all stores for data of a deleted tenant; return the result for each store.

    No data was found if `left` is empty in every result. `has_contents`: also search the contents
    of other tenants' objects, not only their keys.

    Raises:
        Unavailable: a store does not respond.
    """
    results = []
    for store in work.list_stores():
        remaining = await store.find_remaining(LEFT_MAX)
        results.append(StoreAudit(store.name, remaining.checked, remaining.found))
        report(store.name, remaining.checked)
    results.append(await _audit_items(work, texts, report))
    results.append(await _audit_objects(work, texts, has_contents=has_contents, report=report))
    return results


def parse_texts(texts: Sequence[str]) -> list[bytes]:
    """Return the byte strings to search for.

    Raises:
        BadRequest: there are too many strings, or a string is too short.
    """
    encoded = [text.encode() for text in texts if text]
    if len(encoded) > TEXTS_MAX:
        raise BadRequest(f"--find: at most {TEXTS_MAX} strings; got {len(encoded)}")
    if short := [text for text in encoded if len(text) < TEXT_BYTES_MIN]:
        raise BadRequest(f"--find: at least {TEXT_BYTES_MIN} bytes; got {short[0].decode()!r}")
    return encoded


def _compile_pattern(tenant: str, texts: Sequence[bytes]) -> re.Pattern[bytes]:
    name = re.escape(tenant.encode())
    marks = [rb"\btenant=" + name + rb"/", *(re.escape(text) for text in texts)]
    return re.compile(b"|".join(marks))


async def _audit_items(work: OpenTenant, texts: Sequence[bytes], report: Report) -> StoreAudit:
    """Search other tenants' items for strings that belong to the tenant, and for `texts`."""
    result = StoreAudit("dynamodb:others", 0, [])
    pattern, own = _compile_pattern(work.tenant, texts), work.tenant + SEPARATOR
    async with open_all_items(work.settings, work.clock, work.units_per_s) as items:
        for table in TABLES:
            async for page in items.iter_pages(table):
                for item in page.items:
                    partition = item[table.key.partition]["S"]
                    if get_tenant(table, item) == work.tenant or partition == PARTITION:
                        continue  # the tenant's own item, audited above, or a tenant record
                    is_left = any(text.startswith(own) for text in _list_texts(item))
                    if is_left or pattern.search(msgspec.json.encode(item)):
                        result.left.append(f"{table.name}: {partition}")
                result.checked += page.scanned
                report(result.store, page.scanned)
                if len(result.left) >= LEFT_MAX:
                    return result
    return result


def _list_texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for element in value.values() for text in _list_texts(element)]
        case list():
            return [text for element in value for text in _list_texts(element)]
        case _:
            return []


async def _audit_objects(
    work: OpenTenant, texts: Sequence[bytes], *, has_contents: bool, report: Report
) -> StoreAudit:
    """Search other tenants' objects: their keys and, if `has_contents`, their contents."""
    result = StoreAudit("s3:others", 0, [])
    pattern, own = _compile_pattern(work.tenant, texts), work.tenant + SEPARATOR
    async with open_s3(get_tenant_settings(work.settings, "").cold) as bucket:
        async for page in TenantObjects(bucket).iter_pages():
            for s3_object in page:
                if s3_object.key.startswith(own):
                    continue  # the tenant's own object, already audited
                is_left = pattern.search(s3_object.key.encode()) is not None
                if has_contents and not is_left:
                    try:
                        content = await bucket.read(s3_object.key, size_max=OBJECT_BYTES_MAX)
                    except NotFound:
                        continue  # the object was deleted after it was listed
                    is_left = pattern.search(decode_object(content)) is not None
                if is_left:
                    result.left.append(s3_object.key)
            result.checked += len(page)
            report(result.store, len(page))
            if len(result.left) >= LEFT_MAX:
                break
    return result


def decode_object(content: bytes) -> bytes:
    """Return the content of an object, decompressed if it is an archive segment or Parquet."""
    if content.startswith(_ZSTD):
        with zstandard.ZstdDecompressor().stream_reader(content) as reader:
            return reader.read(OBJECT_BYTES_MAX)
    if content.startswith(b"PAR1"):
        return _decode_parquet(content)
    return content


def _decode_parquet(content: bytes) -> bytes:
    """Return the rows as JSON lines; if pyarrow is not installed, return the file itself."""
    import io

    try:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]  # no type information
    except ImportError:
        return content
    rows = pq.read_table(io.BytesIO(content)).to_pylist()
    return b"\n".join(msgspec.json.encode(row) for row in rows)
