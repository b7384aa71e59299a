"""The wheel in an empty environment: its metadata, and `chatserver dev` from an empty folder."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import venv
from email import message_from_string
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from chatserver.dev import binaries
from tests.support import devrun
from tests.support.web_client import build_web_client

ROOT = Path(__file__).parents[2]
SERVERS = ("redis-server", "dynoxide", "ministack")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is published."""
    build_web_client()
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(folder)], cwd=ROOT, check=True, timeout=240)
    (built,) = folder.glob("tierchat-*.whl")
    return built


def requirements_of(wheel: Path) -> list[Requirement]:
    """Return what the extras `all` and `search` install, including the extras that they name."""
    with ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    named = message_from_string(text).get_all("Requires-Dist", [])
    found = [Requirement(text) for text in named]
    extras = {"all", "search"}.union(*(one.extras for one in found if one.name == "tierchat"), [""])
    return [
        one
        for one in found
        if one.name != "tierchat"
        and (one.marker is None or any(one.marker.evaluate({"extra": each}) for each in extras))
    ]


def installed_by(requirements: list[Requirement]) -> set[str]:
    """Return the distributions that these requirements install, including dependencies."""
    found: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        one = waiting.pop()
        for extra in {"", *one.extras}:
            key = (canonicalize_name(one.name), extra)
            if key in found:
                continue
            found.add(key)
            for text in metadata.requires(one.name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return {name for name, _ in found}


def test_wheel_requires_every_distribution_that_the_code_imports(wheel: Path) -> None:
    """The requirements match the import statements of the packages."""
    with ZipFile(wheel) as archive:
        sources = [archive.read(one) for one in archive.namelist() if one.endswith(".py")]
    imported: set[str] = set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        match node:
            case ast.Import(names=names):
                imported |= {each.name.partition(".")[0] for each in names}
            case ast.ImportFrom(module=str(module), level=0):
                imported.add(module.partition(".")[0])
    providers = metadata.packages_distributions()
    installed = installed_by(requirements_of(wheel))

    missing = {
        name
        for name in imported - sys.stdlib_module_names - {"chatserver", "workers", "tests"}
        if not name.startswith("types_")  # only for the type checker
        and not {canonicalize_name(one) for one in providers.get(name, ())} & installed
    }

    assert missing == set()


def test_wheel_has_the_web_client_with_its_compressed_copies(wheel: Path) -> None:
    """The wheel has every file that the page and the service worker name."""
    folder = "chatserver/web_client/"
    with ZipFile(wheel) as archive:
        sizes = {
            one.filename.removeprefix(folder): one.file_size
            for one in archive.infolist()
            if one.filename.startswith(folder)
        }
        assert "chatserver/api/reference_page/reference.css" in archive.namelist()
        page = archive.read(f"{folder}index.html").decode()
        worker = archive.read(f"{folder}service_worker.js").decode()
    named = {*re.findall(r'(?:src|href)="/([^"]+)"', page)}
    named |= {*re.findall(r'"(assets/[^"]+)"', worker)}

    assert len(named) > 10
    assert named <= sizes.keys()
    scripts = [one for one in named if one.endswith(".js") and sizes[one] > 4096]
    assert scripts
    assert {f"{one}.{kind}" for one in scripts for kind in ("br", "gz")} <= sizes.keys()


def test_wheel_in_an_empty_environment_runs_the_development_servers(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers start in an empty folder outside of the checkout, and a user logs in."""
    environment, folder = tmp_path / "environment", tmp_path / "empty"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    (site,) = (environment / "lib").glob("python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    # Install the packages of the lock file. Path files in that folder, such as the checkout's, have
    # no effect.
    (site / "lock.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    programs = [str(binaries.find_binary(name).parent) for name in SERVERS]
    monkeypatch.setenv("PATH", os.pathsep.join([*programs, os.environ["PATH"]]))
    monkeypatch.setattr(devrun, "CLI", [str(python), "-m", "chatserver.cli.main"])
    folder.mkdir()
    monkeypatch.chdir(folder)

    with devrun.dev_run(tmp_path / "data") as run:
        run.start()
        answer = httpx.post(f"{run.page_url}/v1/dev/login", json={"user": "alice"}, timeout=30)

    assert answer.is_success, answer.text
