"""Static files of the web client, listed once at startup.

Each file of `chatserver/web` of a known type becomes one route and stays in memory. Requests do not
access the file system, so path traversal is impossible.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from litestar import Request, Response
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler

import chatserver
from chatserver.api.security import ANYONE

WEB_FOLDER = Path(chatserver.__file__).parent / "web"
# The framework adds ``charset=utf-8`` to text.
CONTENT_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
# Short paths of pages.
_OTHER_PATHS = {"index.html": ["/"], "docs.html": ["/docs"]}


@dataclasses.dataclass(frozen=True, slots=True)
class PageFile:
    """A file that is served."""

    paths: list[str]
    content: bytes
    content_type: str
    etag: str


def read_page_files(folder: Path = WEB_FOLDER) -> list[PageFile]:
    """Return the files of known types below `folder`, except hidden ones."""
    files = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        if path.suffix not in CONTENT_TYPES or is_hidden or not path.is_file():
            continue
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        paths = [f"/{name}", *_OTHER_PATHS.get(name, ())]
        files.append(PageFile(paths, content, CONTENT_TYPES[path.suffix], etag))
    return files


def page_routes(files: list[PageFile]) -> list[HTTPRouteHandler]:
    """Return a route for each file."""
    return [_route(file) for file in files]


def _route(file: PageFile) -> HTTPRouteHandler:
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}

    async def serve(request: Request[Any, Any, Any]) -> Response[bytes]:
        if is_known_etag(request.headers.get("if-none-match", ""), file.etag):
            return Response(b"", status_code=304, headers=headers)
        return Response(file.content, media_type=file.content_type, headers=headers)

    methods = [HttpMethod.GET, HttpMethod.HEAD]
    opt = {"rule": ANYONE}
    return HTTPRouteHandler(file.paths, http_method=methods, include_in_schema=False, opt=opt)(
        serve
    )


def is_known_etag(if_none_match: str, etag: str) -> bool:
    """Return whether an ETag matches, by weak comparison (RFC 9110 section 13.1.2)."""
    given = [item.strip().removeprefix("W/") for item in if_none_match.split(",")]
    return etag in given or given == ["*"]
