"""ZIP file for an export, built in a temporary file of limited size.

Compression runs in a thread. The file is deleted when the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any

import msgspec

from chatserver.errors import TooLarge


class LimitedZipFile:
    """A ZIP in progress; created by `open_zip`."""

    def __init__(self, file: IO[bytes], bytes_max: int) -> None:
        self._file = file
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True)
        self._bytes_max = bytes_max

    async def put_text(self, name: str, content: bytes) -> None:
        await asyncio.to_thread(self._zip.writestr, name, content)
        self._check_size()

    async def put_lines(self, name: str, pages: AsyncIterator[list[Any]]) -> int:
        """Write pages of items as JSON Lines; return the number of items."""
        count = 0
        with self._open_entry(name, zipfile.ZIP_DEFLATED) as entry:
            async for page in pages:
                lines = b"".join(msgspec.json.encode(record) + b"\n" for record in page)
                await asyncio.to_thread(entry.write, lines)
                count += len(page)
                self._check_size()
        return count

    async def put_pieces(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Write a file in pieces, uncompressed, because most uploads are already compressed."""
        with self._open_entry(name, zipfile.ZIP_STORED) as entry:
            async for piece in pieces:
                await asyncio.to_thread(entry.write, piece)
                self._check_size()

    @contextlib.contextmanager
    def _open_entry(self, name: str, compression: int) -> Iterator[IO[bytes]]:
        info = zipfile.ZipInfo(name)
        info.compress_type = compression
        with self._zip.open(info, "w", force_zip64=True) as entry:
            yield entry

    def _check_size(self) -> None:
        if self._file.tell() > self._bytes_max:
            raise TooLarge(f"the export would exceed {self._bytes_max:,} bytes")

    def close(self) -> None:
        """Stop writing, even if the ZIP is incomplete."""
        with contextlib.suppress(ValueError, OSError):
            self._zip.close()

    async def finish(self) -> tuple[IO[bytes], int]:
        """Complete the ZIP; return `(file, size in bytes)`, with the file positioned at 0."""
        await asyncio.to_thread(self._zip.close)
        size = self._file.tell()
        self._check_size()
        self._file.seek(0)
        return self._file, size


@contextlib.asynccontextmanager
async def open_zip(bytes_max: int) -> AsyncIterator[LimitedZipFile]:
    """Create a temporary ZIP, which is deleted at the end of the block."""
    with tempfile.TemporaryFile() as file:
        archive = LimitedZipFile(file, bytes_max)
        try:
            yield archive
        finally:
            archive.close()
