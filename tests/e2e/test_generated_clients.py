"""Clients that others generate from the OpenAPI document work, retries included."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack import Stack, open_stack
from tests.support.typescript import ROOT, TOOLS, locked, node, run

DOCUMENT = ROOT / "docs" / "openapi.json"
LOCKS = ROOT / "deploy" / "dev" / "generators"
JOURNEYS = Path(__file__).parent / "generated_clients"
GENERATORS = TOOLS / "generators"


@functools.cache
def install() -> None:
    """Install the generators, if their lock files have changed."""
    with locked():
        ready = GENERATORS / ".ready"
        names = ("python.lock", "package-lock.json")
        wanted = b"".join((LOCKS / name).read_bytes() for name in names)
        if not ready.exists() or ready.read_bytes() != wanted:
            run("sh", "deploy/dev/setup.sh", "generators", cwd=ROOT)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[str]:
    """The URL of an API with its workers and stores."""
    install()
    with open_stack(tmp_path / "stack", fsync="no") as stack:
        yield start_api(stack)


def start_api(stack: Stack) -> str:
    """Start an API that hashes passwords at the lowest cost; return its URL."""
    return stack.start_api(
        CHAT_AUTH_ARGON2_MEMORY_KIB="8", **{"chatserver.auth.passwords.ARGON2_PASSES": "1"}
    ).endpoint


@pytest.mark.timeout(300)
def test_python_client_generated_from_the_document_repeats_requests(
    api: str, tmp_path: Path
) -> None:
    """openapi-python-client generates it without a warning, and parses every response."""
    config = tmp_path / "config.yml"
    config.write_text("post_hooks: []\n")
    options = ("--meta", "none", "--fail-on-warning", "--config", str(config))
    source, package = ("--path", str(DOCUMENT)), ("--output-path", str(tmp_path / "client"))
    generator = str(GENERATORS / "bin" / "openapi-python-client")
    run(generator, "generate", *source, *package, *options, cwd=tmp_path)

    python = str(GENERATORS / "bin" / "python")
    run(python, str(JOURNEYS / "journey.py"), api, str(tmp_path), cwd=tmp_path)


@pytest.mark.timeout(300)
def test_typescript_client_generated_from_the_document_repeats_requests(
    api: str, tmp_path: Path
) -> None:
    """openapi-typescript generates the types; with openapi-fetch, they match every response."""
    modules = GENERATORS / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(JOURNEYS / "journey.ts", tmp_path)
    generator = str(modules / "openapi-typescript" / "bin" / "cli.js")
    # Fields with a default value are optional in requests.
    options = ("-o", str(tmp_path / "schema.d.ts"), "--default-non-nullable=false")
    run(node(), generator, str(DOCUMENT), *options, cwd=tmp_path)
    compiler = str(modules / "typescript" / "bin" / "tsc")
    options = ("--strict", "--module", "nodenext", "--target", "es2022", "--skipLibCheck")
    run(node(), compiler, *options, "--types", "node", "journey.ts", cwd=tmp_path)

    run(node(), "journey.js", api, cwd=tmp_path)
