"""A registry for `npm install` without a network, with the packages of a `node_modules` folder.

It serves the versions that are installed there.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.support.deadlines import EXIT_S

HOST = "127.0.0.1"


class Registry:
    """Packages by name: their newest installed version."""

    def __init__(self, modules: Path) -> None:
        folders = [path for path in modules.iterdir() if not path.name.startswith((".", "@"))]
        folders += [path for scope in modules.glob("@*") for path in scope.iterdir()]
        self._folders = {path.relative_to(modules).as_posix(): path for path in folders}
        self.url = ""

    def describe(self, name: str) -> dict[str, Any] | None:
        """Return the registry document of a package."""
        manifest = self._manifest(name)
        if manifest is None:
            return None
        # Of the platform-specific packages, only those for this platform are installed.
        optional = manifest.get("optionalDependencies", {})
        installed = {key: value for key, value in optional.items() if key in self._folders}
        version = manifest["version"]
        released = manifest | {
            "optionalDependencies": installed,
            "dist": {"tarball": f"{self.url}/-/{name}.tgz"},
        }
        return {"name": name, "dist-tags": {"latest": version}, "versions": {version: released}}

    def _manifest(self, name: str) -> dict[str, Any] | None:
        if name not in self._folders:
            return None
        return dict(json.loads((self._folders[name] / "package.json").read_text("utf-8")))

    def pack(self, name: str) -> bytes | None:
        """Return the files of a package."""
        if name not in self._folders:
            return None
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as archive:
            archive.add(self._folders[name], "package")
        return content.getvalue()


@contextlib.contextmanager
def open_registry(modules: Path) -> Iterator[Registry]:
    """Serve the packages in `modules`, by name."""
    registry = Registry(modules)

    class Handler(http.server.BaseHTTPRequestHandler):
        """Handles requests of npm."""

        def do_GET(self) -> None:
            path = unquote(self.path).removeprefix("/")
            if path.startswith("-/"):
                content = registry.pack(path.removeprefix("-/").removesuffix(".tgz"))
            else:
                found = registry.describe(path)
                content = None if found is None else json.dumps(found).encode()
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as server:
        registry.url = f"http://{HOST}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join(EXIT_S)
