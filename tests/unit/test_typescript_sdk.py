"""Rules for the sources and the package of clients/typescript."""

from __future__ import annotations

import itertools
import json
import re

from tests.support.typescript import PACKAGE, ROOT

SOURCES = [
    path
    for folder in ("src", "tests", "scripts", "examples")
    for path in sorted((PACKAGE / folder).rglob("*"))
    if path.suffix in (".ts", ".mjs", ".tsx")
]
GENERATED = PACKAGE / "src" / "generated"
LINE_CHARS_MAX, FILE_LINES_MAX, FOLDER_FILES_MAX = 100, 500, 25
FORBIDDEN = re.compile(r"\beval\(|new Function|innerHTML|document\.write|@ts-ignore|@ts-nocheck")


def test_package_has_no_dependencies() -> None:
    """Development tools are pinned, and React is optional."""
    manifest = json.loads((PACKAGE / "package.json").read_text())

    assert "dependencies" not in manifest
    assert all(each["optional"] for each in manifest["peerDependenciesMeta"].values())
    assert set(manifest["peerDependenciesMeta"]) == set(manifest["peerDependencies"])
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", v) for v in manifest["devDependencies"].values())
    assert (PACKAGE / "package-lock.json").exists()


def test_typescript_sources_have_bounded_lines_files_and_folders() -> None:
    """Python sources have the same limits; generated files may be longer."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > LINE_CHARS_MAX
    ]
    large = [
        path.name
        for path in SOURCES
        if path.parent != GENERATED and len(path.read_text("utf-8").splitlines()) > FILE_LINES_MAX
    ]
    folders = {path.parent for path in SOURCES}

    assert (long, large) == ([], [])
    assert max(len(list(folder.iterdir())) for folder in folders) <= FOLDER_FILES_MAX


def test_typescript_sources_evaluate_no_text_and_ignore_no_errors() -> None:
    """Text is never run or parsed as markup; compiler errors are never disabled."""
    found = [
        f"{path.name}: {match[0]}"
        for path in SOURCES
        for match in FORBIDDEN.finditer(path.read_text("utf-8"))
    ]

    assert found == []


def test_state_machine_does_no_io() -> None:
    """Clock, timers, randomness and network are arguments."""
    forbidden = r"Date\.now|performance\.|setTimeout|setInterval|Math\.random|fetch\(|WebSocket\("
    found = {
        path.name
        for path in (PACKAGE / "src" / "state").glob("*.ts")
        if re.search(forbidden, path.read_text("utf-8"))
    }

    assert found == set()


def test_only_the_react_export_imports_react() -> None:
    """The core works without React."""
    users = {
        path.relative_to(PACKAGE / "src").parts[0]
        for path in (PACKAGE / "src").rglob("*.ts*")
        if re.search(r"from \"react|/react/", path.read_text("utf-8"))
    }

    assert users == {"react"}


def test_each_export_has_a_comment() -> None:
    """Everything that an application can use has a TSDoc comment."""
    without_comment = []
    for path in (PACKAGE / "src").rglob("*.ts*"):
        lines = path.read_text("utf-8").splitlines()
        for before, line in itertools.pairwise(lines):
            is_export = re.match(r"export (async )?(class|interface|type|function|const) \w", line)
            if is_export and not before.endswith("*/"):
                without_comment.append(f"{path.name}: {line}")

    assert without_comment == []
