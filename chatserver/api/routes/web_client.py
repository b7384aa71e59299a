"""The web client of `clients/web`, served at `/next/` from its build.

`npm run build` writes the folder `chatserver/web_client`, and the wheel includes it. All files are
listed once at startup and stay in memory, with their Brotli and gzip copies. Every other path below
`/next/` is a page of the client's router and returns `index.html`.

A checkout without a build serves one page that explains how to make it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from litestar import Request, Response
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler

import chatserver
from chatserver.api.routes.web_pages import is_known_etag
from chatserver.api.security import ANYONE
from chatserver.errors import NotFound

BASE: Final = "/next"
CLIENT_FOLDER: Final = Path(chatserver.__file__).parent / "web_client"
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
ENCODINGS: Final = {"br": ".br", "gzip": ".gz"}  # by preference
HASHED: Final = "assets/"  # their names contain a hash of their content
IMMUTABLE: Final = "public, max-age=31536000, immutable"
NOT_BUILT: Final = b"""<!doctype html>
<html lang="en">
<title>tierchat</title>
<h1>The web client is not built</h1>
<p>Install Node.js 20 or later with npm, then run <code>make run</code> again.</p>
<p><a href="/">Open the classic client</a></p>
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientFile:
    """A file of the build: its content by encoding; "" is the content as it is."""

    name: str
    contents: Mapping[str, bytes]

    def choose(self, accepted: str) -> tuple[str, bytes]:
        """Return the encoding and the content for an `Accept-Encoding` header."""
        names = _accepted_encodings(accepted)
        encoding = next((each for each in ENCODINGS if each in names and each in self.contents), "")
        return encoding, self.contents[encoding]


def read_client_files(folder: Path = CLIENT_FOLDER) -> list[ClientFile]:
    """Return the files of the build; none if it was not built."""
    if not (folder / "index.html").is_file():
        return []
    files = []
    for path in sorted(folder.rglob("*")):
        if path.suffix not in CONTENT_TYPES or not path.is_file():
            continue
        contents = {"": path.read_bytes()}
        for encoding, suffix in ENCODINGS.items():
            copy = path.with_name(path.name + suffix)
            if copy.is_file():
                contents[encoding] = copy.read_bytes()
        files.append(ClientFile(path.relative_to(folder).as_posix(), contents))
    return files


def client_routes(files: list[ClientFile]) -> list[HTTPRouteHandler]:
    """Return the routes below `/next`."""
    page = next((file for file in files if file.name == "index.html"), None)
    page = page or ClientFile("index.html", {"": NOT_BUILT})
    others = [file for file in files if file.name != "index.html"]
    return [*map(_file_route, others), _page_route(page)]


def _file_route(file: ClientFile) -> HTTPRouteHandler:
    respond = _responder(file)

    async def serve(request: Request[Any, Any, Any]) -> Response[bytes]:
        return respond(request)

    return _handler([f"{BASE}/{file.name}"], serve)


def _page_route(file: ClientFile) -> HTTPRouteHandler:
    respond = _responder(file)

    async def serve(request: Request[Any, Any, Any]) -> Response[bytes]:
        # A script of another build must not be answered with a page.
        if request.url.path.startswith(f"{BASE}/{HASHED}"):
            raise NotFound("file: there is no such file in this build of the web client")
        return respond(request)

    return _handler([BASE, f"{BASE}/{{path:path}}"], serve)


def _handler(paths: list[str], serve: Callable[..., object]) -> HTTPRouteHandler:
    methods = [HttpMethod.GET, HttpMethod.HEAD]
    opt = {"rule": ANYONE}
    return HTTPRouteHandler(paths, http_method=methods, include_in_schema=False, opt=opt)(serve)


def _responder(file: ClientFile) -> Callable[[Request[Any, Any, Any]], Response[bytes]]:
    content_type = CONTENT_TYPES[Path(file.name).suffix]
    caching = IMMUTABLE if file.name.startswith(HASHED) else "no-cache"
    etag = hashlib.sha256(file.contents[""]).hexdigest()[:32]

    def respond(request: Request[Any, Any, Any]) -> Response[bytes]:
        encoding, content = file.choose(request.headers.get("accept-encoding", ""))
        headers = {
            "ETag": f'"{etag}-{encoding}"' if encoding else f'"{etag}"',
            "Cache-Control": caching,
            "Vary": "Accept-Encoding",
        }
        if is_known_etag(request.headers.get("if-none-match", ""), headers["ETag"]):
            return Response(b"", status_code=304, headers=headers)
        if encoding:
            headers["Content-Encoding"] = encoding
        return Response(content, media_type=content_type, headers=headers)

    return respond


def _accepted_encodings(header: str) -> set[str]:
    """Return the encodings of an `Accept-Encoding` header, without those of weight 0."""
    names = set()
    for item in header.split(",")[: len(ENCODINGS) * 8]:
        name, _, parameters = item.partition(";")
        weight = parameters.strip().removeprefix("q=")
        if weight.strip("0.") or not weight:
            names.add(name.strip().lower())
    return names
