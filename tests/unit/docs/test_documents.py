"""Commands, settings, files, tests, links, make targets and modules named in documents exist."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable

import pytest

from chatserver.config import PREFIX, Settings
from chatserver.telemetry import metrics
from tests.unit.docs.markdown import ROOT, Document, documents, read_document
from tests.unit.docs.shellwords import check_command, commands_of

# Variables that are no settings: of the command line, of tests, of programs that we start.
NOT_SETTINGS = {"CHAT_CONFIG", "CHAT_SECRETS_DIR", "CHAT_FAILPOINT", "CHAT_TOKEN"}
SECTIONS = {
    section: set(getattr(field.annotation, "model_fields", {}))
    for section, field in Settings.model_fields.items()
}
VARIABLES = NOT_SETTINGS | {
    f"{PREFIX}{section}_{name}".upper() for section, names in SECTIONS.items() for name in names
}
# There `limits.sends_in_flight_max` is a field of `welcome`, and no setting.
OF_THE_WIRE = {"docs/protocol.md", "docs/sdk.md"}
# Variables of the deployments themselves, such as an image's tag: `${CHAT_IMAGE}` in a file there.
OF_DEPLOYMENTS = {
    name
    for path in (ROOT / "deploy").rglob("*")
    if path.suffix in (".yml", ".yaml", ".env", ".sh")
    for name in re.findall(r"\$\{(CHAT_[A-Z0-9_]+)", path.read_text(encoding="utf-8"))
}
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in [path.stem, *re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))]
}
FILE_TYPES = {"md", "py", "lua", "json", "jsonl", "js", "env", "toml"}


def each_document(check: Callable[[Document], None]) -> Callable[[], None]:
    """Make one test of all documents: a test for each would take longer to begin than to run."""

    def test() -> None:
        wrong = {}
        for document in documents():
            try:
                check(document)
            except AssertionError as exc:
                wrong[document.name] = str(exc)
        assert wrong == {}

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


@each_document
def test_each_command_of_a_document_is_one_that_there_is(document: Document) -> None:
    """The command, its subcommand, its options, and the choices of its arguments."""
    wrong = {f"chatserver {one}": check_command(one) for one in commands_of(document)}

    assert {one: why for one, why in wrong.items() if why} == {}


@each_document
def test_each_setting_of_a_document_is_one_that_there_is(document: Document) -> None:
    """As a variable, or as the beginning of several (`CHAT_GATEWAY_*`)."""
    named = set(re.findall(rf"\b{PREFIX}[A-Z0-9_]+", document.text_without("mermaid")))
    known = VARIABLES | OF_DEPLOYMENTS

    unknown = {
        name
        for name in named - known
        if not (name.endswith("_") and any(one.startswith(name) for one in known))
    }

    assert unknown == set()


@each_document
def test_each_dotted_setting_of_a_document_is_one_that_there_is(document: Document) -> None:
    """`section.name`, unless it is a file, or something that the code itself calls so."""
    if document.name in OF_THE_WIRE:
        return
    pattern = re.compile(r"([a-z]+)\.([a-z][a-z0-9_]*)")
    found = filter(None, (pattern.fullmatch(code) for code in document.inline))

    wrong = {
        one[0]
        for one in found
        if one[1] in SECTIONS
        and one[2] not in SECTIONS[one[1]] | FILE_TYPES
        and not is_in_the_code(one[0])
    }

    assert wrong == set()


@each_document
def test_each_metric_of_a_document_is_one_that_there_is(document: Document) -> None:
    """As a process exports it: a counter ends in `_total`, or a query of it finds nothing."""
    named = {name for code in document.inline for name in re.findall(r"\bchatserver_\w+", code)}
    known = exported()

    unknown = {
        name
        for name in named - known
        if not (name.endswith("_") and any(one.startswith(name) for one in known))
    }

    assert unknown == set()


@functools.cache
def exported() -> set[str]:
    """Return the names under which Prometheus finds what we measure."""
    families = [
        family
        for each in vars(metrics).values()
        if not isinstance(each, type) and hasattr(each, "describe")
        for family in each.describe()
    ]
    endings = {"counter": ("_total",), "histogram": ("", "_bucket", "_sum", "_count")}
    return {one.name + end for one in families for end in endings.get(one.type, ("",))}


def is_in_the_code(name: str) -> bool:
    """Say whether it is a module, or written somewhere: a line of the log, a call of Redis."""
    return (ROOT / "chatserver" / name.replace(".", "/")).with_suffix(".py").exists() or any(
        re.search(rf"(?<![\w.]){re.escape(name)}\b", text) for text in sources()
    )


@functools.cache
def sources() -> tuple[str, ...]:
    """Return the text of each source file."""
    paths = [
        path
        for folder in ("chatserver", "workers")
        for kind in ("*.py", "*.lua")
        for path in sorted((ROOT / folder).rglob(kind))
    ]
    return tuple(path.read_text(encoding="utf-8") for path in paths)


@each_document
def test_each_link_of_a_document_leads_somewhere(document: Document) -> None:
    """To a file or folder of the repository, and to a heading where it names one."""
    broken = set()
    for link in document.links:
        place, _, anchor = link.partition("#")
        target = (document.path.parent / place).resolve() if place else document.path
        is_there = target.exists() and target.is_relative_to(ROOT)
        if is_there and anchor and target.suffix == ".md":
            is_there = anchor in read_document(target).anchors
        if not is_there:
            broken.add(link)

    assert broken == set()


@each_document
def test_each_file_that_a_document_names_is_there(document: Document) -> None:
    """Code that is a path from the root, with or without its line."""
    pattern = re.compile(r"(?:chatserver|workers|tests|docs|deploy)/[\w./-]*[\w/]")
    named = {code for code in document.inline if pattern.fullmatch(code)}

    assert {name for name in named if not (ROOT / name).exists()} == set()


@each_document
def test_each_test_that_a_document_names_is_there(document: Document) -> None:
    """By the name of its function, or of its file."""
    named = {name for code in document.inline for name in re.findall(r"\b(test_\w+)\b", code)}

    assert named - TESTS == set()


@each_document
def test_each_target_and_variable_of_make_in_a_document_is_there(document: Document) -> None:
    """`make test PYTEST_ARGS=tests/unit`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [one for one in code_of(document) if re.match(r"make [a-z]", one)]

    named = {word for line in lines for word in re.findall(r"^make ([a-z]+)", line)}
    variables = {word for line in lines for word in re.findall(r" ([A-Z_]+)=", line)}
    assert named - set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)) == set()
    assert {name for name in variables if f"$({name})" not in makefile} == set()


@each_document
def test_each_module_that_a_document_runs_is_there_with_its_options(document: Document) -> None:
    """`python -m tests.benchmarks.sharded_reads --reads 120`."""
    wrong = []
    for line in code_of(document):
        for name, rest in re.findall(r"\bpython3? -m ([\w.]+)([^;&|]*)", line):
            if name.split(".")[0] not in ("chatserver", "workers", "tests"):
                continue
            path = (ROOT / name.replace(".", "/")).with_suffix(".py")
            if not path.is_file() and importlib.util.find_spec(name) is None:
                wrong.append(name)
            elif name.startswith("tests.benchmarks."):
                source = "".join(one.read_text("utf-8") for one in path.parent.glob("*.py"))
                options = re.findall(r"(?<!\S)\[?(--[a-z-]+)", rest)
                wrong += [
                    f"{name} {one}" for one in options if not re.search(rf'["/]{one}["/]', source)
                ]

    assert wrong == []


def code_of(document: Document) -> list[str]:
    """Return all that is to be typed."""
    return [*document.inline, *document.lines_of_shell()]


@each_document
def test_each_row_of_a_document_is_in_a_table(document: Document) -> None:
    """A blank line between two rows, or a cell too many, and a reader sees bars and dashes."""
    wrong = []
    for block in re.findall(r"(?:^\|.*\n?)+", document.prose, re.MULTILINE):
        head, *rest = [_cells(row) for row in block.splitlines()]
        if not rest or not all(re.fullmatch(r" *:?-{3,}:? *", cell) for cell in rest[0]):
            wrong.append(block.splitlines()[0])
        wrong += ["|".join(row) for row in rest if len(row) != len(head)]

    assert wrong == []


def _cells(row: str) -> list[str]:
    """Split a row at its bars, but for those that are escaped."""
    return re.split(r"(?<!\\)\|", row.strip())[1:-1]


def test_documents_are_found_with_their_commands_settings_and_links() -> None:
    """A parser that reads nothing would find nothing wrong."""
    found = {document.name: document for document in documents()}

    readme = found["README.md"]
    assert "worker all" in list(commands_of(readme))
    assert any("CHAT_REDIS_URL" in line for line in readme.lines_of_shell())
    assert "docs/protocol.md" in readme.links
    assert "large-chats" in found["docs/protocol.md"].anchors
    assert len([name for name in found if name.startswith("docs/decisions/")]) >= 25


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gatewya", "there is no command"),
        ("worker persits", "cannot be"),
        ("worker persist|repiar", "cannot be"),
        ("gateway --proceses 4", "has no option"),
        ("gateway --processes", "wants a value"),
        ("keys list extra", "takes no argument"),
        ("keys creat|list", "there is no command"),
    ],
)
def test_command_that_is_wrong_is_told(text: str, why: str) -> None:
    """The check itself can fail."""
    assert why in str(check_command(text))


@pytest.mark.parametrize(
    "text",
    [
        "worker persist|repair",
        "companion create|list",
        "keys rotate <id> --overlap 3600",
        "restore …",
    ],
)
def test_command_with_placeholders_is_understood(text: str) -> None:
    """Documents contain placeholders that no shell would accept."""
    assert check_command(text) is None
