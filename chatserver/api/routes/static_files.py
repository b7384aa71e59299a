"""Static files: the web client at `/`, and the API reference page at `/docs`.

`npm run build` in `clients/web` writes the folder `chatserver/web_client`, and the wheel includes
it. All files are listed once at startup and stay in memory, with their Brotli and gzip copies.
Requests do not access the file system, so path traversal is impossible.

Without a build, the server serves one page that explains how to build the client.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from litestar import Request, Response
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler

import chatserver
from chatserver.api.authorization import ANYONE

CLIENT_FOLDER: Final = Path(chatserver.__file__).parent / "web_client"
REFERENCE_FOLDER: Final = Path(chatserver.__file__).parent / "api" / "reference_page"
NOT_FOUND_FOLDER: Final = Path(chatserver.__file__).parent / "api" / "not_found_page"
# First path segments of the web client's pages; keep in sync with clients/web/src/page/paths.ts.
CLIENT_PAGES: Final = (
    "chats",
    "companions",
    "moderation",
    "operations",
    "people",
    "saved",
    "search",
    "settings",
    "share",
    "timeline",
)
# The framework adds ``charset=utf-8`` to text.
CONTENT_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
ENCODINGS: Final = {"br": ".br", "gzip": ".gz"}  # in order of preference
HASHED: Final = "assets/"  # path prefix of files whose names contain a hash of the content
IMMUTABLE: Final = "public, max-age=31536000, immutable"
INDEX: Final = "index.html"
# URL of the page that asks the user to share again; see `build_missed_share_route`.
MISSED_SHARE: Final = "/share?missed"
NOT_BUILT: Final = b"""<!doctype html>
<html lang="en">
<title>tierchat</title>
<h1>The web client is not built</h1>
<p>Install Node.js 20.19 or later with npm, then run <code>make run</code> again.</p>
<p>The API works without it: <a href="/docs">API reference</a>.</p>
"""


@dataclasses.dataclass(frozen=True)
class StaticFile:
    """A file and its content in each encoding; the key "" means not encoded."""

    name: str
    contents: Mapping[str, bytes]

    def choose(self, accepted: str) -> tuple[str, bytes]:
        """Return the encoding and the content for an `Accept-Encoding` header."""
        names = _accepted_encodings(accepted)
        encoding = next(
            (
                candidate
                for candidate in ENCODINGS
                if candidate in names and candidate in self.contents
            ),
            "",
        )
        return encoding, self.contents[encoding]

    @functools.cached_property
    def etag(self) -> str:
        return hashlib.sha256(self.contents[""]).hexdigest()[:32]

    def respond(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Return the file, or 304 if the client already has this version."""
        encoding, content = self.choose(request.headers.get("accept-encoding", ""))
        headers = {
            "ETag": f'"{self.etag}-{encoding}"' if encoding else f'"{self.etag}"',
            "Cache-Control": IMMUTABLE if self.name.startswith(HASHED) else "no-cache",
            "Vary": "Accept-Encoding",
        }
        if _is_known_etag(request.headers.get("if-none-match", ""), headers["ETag"]):
            return Response(b"", status_code=304, headers=headers)
        if encoding:
            headers["Content-Encoding"] = encoding
        media_type = CONTENT_TYPES[Path(self.name).suffix]
        return Response(content, media_type=media_type, headers=headers)


def read_files(folder: Path) -> list[StaticFile]:
    """Return the files of known types below `folder`, except hidden ones."""
    files = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if path.suffix not in CONTENT_TYPES or is_hidden or not path.is_file():
            continue
        contents = {"": path.read_bytes()}
        for encoding, suffix in ENCODINGS.items():
            copy = path.with_name(path.name + suffix)
            if copy.is_file():
                contents[encoding] = copy.read_bytes()
        files.append(StaticFile(name.as_posix(), contents))
    return files


def build_client_routes(folder: Path = CLIENT_FOLDER) -> list[HTTPRouteHandler]:
    """Return the routes of the web client: its files, and `index.html` at the path of each page."""
    files = {file.name: file for file in read_files(folder)}
    if INDEX not in files:
        files = {INDEX: StaticFile(INDEX, {"": NOT_BUILT})}
    pages = [path for name in CLIENT_PAGES for path in (f"/{name}", f"/{name}/{{rest:path}}")]
    others = {INDEX: ["/", *pages]}
    routes = [
        _route(file, [f"/{file.name}", *others.get(file.name, ())]) for file in files.values()
    ]
    return [*routes, build_missed_share_route()]


def build_missed_share_route() -> HTTPRouteHandler:
    """Return the route to which browsers post what a user shares with the web client.

    The client's service worker intercepts this request (Web Share Target API). If it is not active
    yet, the server gets the request, but does not read the body: it is private and may be large.
    """

    async def receive_missed_share() -> Response[bytes]:
        return Response(b"", status_code=303, headers={"Location": MISSED_SHARE})

    opt = {"rule": ANYONE}
    return HTTPRouteHandler(
        "/share", http_method=HttpMethod.POST, include_in_schema=False, opt=opt
    )(receive_missed_share)


def build_reference_routes(folder: Path = REFERENCE_FOLDER) -> list[HTTPRouteHandler]:
    """Return the routes of the API reference, below `/docs`."""
    return [
        _route(file, ["/docs" if file.name == INDEX else f"/docs/{file.name}"])
        for file in read_files(folder)
    ]


def build_not_found_routes() -> list[HTTPRouteHandler]:
    """Return the route of the style sheet of the page for unknown addresses.

    The content security policy allows no inline style.
    """
    return [
        _route(file, [f"/{file.name}"])
        for file in read_files(NOT_FOUND_FOLDER)
        if file.name != INDEX
    ]


def _route(file: StaticFile, paths: list[str]) -> HTTPRouteHandler:
    async def serve(request: Request[Any, Any, Any]) -> Response[bytes]:
        return file.respond(request)

    opt = {"rule": ANYONE}
    return HTTPRouteHandler(paths, http_method=HttpMethod.GET, include_in_schema=False, opt=opt)(
        serve
    )


def _is_known_etag(if_none_match: str, etag: str) -> bool:
    """Return whether an ETag matches, by weak comparison (RFC 9110 section 13.1.2)."""
    etags = [item.strip().removeprefix("W/") for item in if_none_match.split(",")]
    return etag in etags or etags == ["*"]


def _accepted_encodings(header: str) -> set[str]:
    """Return the encodings that an `Accept-Encoding` header accepts (weight above 0)."""
    names = set()
    for item in header.split(",")[: len(ENCODINGS) * 8]:
        name, _, parameters = item.partition(";")
        weight = parameters.strip().removeprefix("q=")
        if weight.strip("0.") or not weight:
            names.add(name.strip().lower())
    return names
