"""The container image: hadolint, contents and health check, without building it.

A build needs a Docker daemon and a registry with the base image, which may be unavailable.
"""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from chatserver.extras import EXTRAS
from chatserver.telemetry import probes
from chatserver.telemetry.probes import Heartbeat, make_app
from tests.support.deployments import DEPLOY, ROOT, run_tool
from tests.support.servers.processes import free_port

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
STAGES = re.split(r"\n(?=FROM )", DOCKERFILE.read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned(file: str) -> dict[str, set[str]]:
    """Return the hashes of each `name==version` in a lock file."""
    found: dict[str, set[str]] = {}
    for block in re.split(r"\n(?=\S)", (ROOT / file).read_text(encoding="utf-8")):
        if match := re.match(r"[\w.-]+==[^\s;]+", block):
            found[match[0]] = set(re.findall(r"sha256:[0-9a-f]{64}", block))
    return found


def instruction(name: str) -> str:
    """Return an instruction of the last stage, on one line."""
    joined = STAGES[-1].replace("\\\n", " ")
    (found,) = re.findall(rf"^{name}\s+(.+)$", joined, re.MULTILINE)
    return str(found)


def test_dockerfile_passes_hadolint() -> None:
    """No rule is disabled."""
    done = run_tool("hadolint", "--failure-threshold", "style", DOCKERFILE)

    assert done.returncode == 0, done.stdout
    assert "hadolint ignore" not in DOCKERFILE.read_text(encoding="utf-8")


def test_image_runs_every_command_and_not_as_root() -> None:
    """The user is a number, because Kubernetes cannot check whether a name is root."""
    user, group = instruction("USER").split(":")

    assert int(user) > 0
    assert int(group) > 0
    assert json.loads(instruction("ENTRYPOINT")) == ["chatserver"]
    assert "chatserver" in PROJECT["project"]["scripts"]
    assert json.loads(instruction("CMD")) == ["--help"]


def test_image_has_the_packages_of_the_lock_file() -> None:
    """The packages have the tested versions and hashes, and no extra lacks a dependency."""
    tested = pinned("requirements.lock")
    installed = pinned("deploy/docker/requirements.lock")
    build_tools = pinned("deploy/docker/build.lock")
    names = {name.partition("==")[0] for name in installed}

    assert installed.items() <= tested.items()
    assert set(PROJECT["build-system"]["requires"]) <= set(build_tools)
    assert all(hashes for hashes in (installed | build_tools).values())
    extras = PROJECT["project"]["optional-dependencies"]
    required = [*PROJECT["project"]["dependencies"]]
    for extra in EXTRAS:
        required += extras[extra]
    assert {re.split(r"[\[><=; ]", each)[0].lower() for each in required} <= names
    assert not {"pytest", "mypy", "playwright"} & names


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    """The other folders stay out of the build context."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    copied = [
        source
        for line in "".join(STAGES).splitlines()
        if (match := re.match(r"COPY (?!--from)(.+)", line))
        for source in match[1].split()[:-1]
    ]

    assert "*" in lines
    for source in copied:
        assert (ROOT / source).exists(), source
        folders = [source, *map(str, Path(source).parents)]
        assert any(fnmatch.filter(folders, pattern) for pattern in allowed), source
    assert not [name for name in (".git", ".env", "tests", "deploy/compose") if name in allowed]


@pytest.mark.parametrize("is_stuck", [False, True])
def test_health_check_fails_for_a_stuck_process(
    is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check uses the probes of a process and only programs in the image."""
    heartbeat = Heartbeat()
    monkeypatch.setattr(heartbeat, "age_s", lambda: 11.0 if is_stuck else 0.0)
    monkeypatch.setattr(probes, "make_app", lambda find_problem: make_app(find_problem, heartbeat))
    port = free_port()
    probes.serve_probes("127.0.0.1", port)
    _, command = instruction("HEALTHCHECK").split(" CMD ")
    program, *arguments = json.loads(command)

    def check() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={"CHAT_TELEMETRY_METRICS_PORT": str(port)},
            capture_output=True,
            check=False,
            timeout=60,
        )

    done = check()
    for _ in range(5):  # as Docker does, because one late response does not mean a stuck process
        if is_stuck or done.returncode == 0:
            break
        done = check()

    assert program == "python"
    assert done.returncode == (1 if is_stuck else 0), done.stderr
