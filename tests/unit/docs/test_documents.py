"""Commands, settings, files, tests, links, make targets and modules in documents exist."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable

import pytest

from chatserver.config import PREFIX, list_sections
from chatserver.telemetry import metrics
from tests.unit.docs.markdown import ROOT, Document, documents, read_document
from tests.unit.docs.shellwords import check_command, commands_of

# Variables that are not settings: of the command line, of tests, of started programs.
NOT_SETTINGS = {"CHAT_CONFIG", "CHAT_SECRETS_DIR", "CHAT_FAILPOINT", "CHAT_TOKEN"}
SECTIONS = {section: set(kind.model_fields) for section, kind in list_sections().items()}
VARIABLES = NOT_SETTINGS | {
    f"{PREFIX}{section}_{name}".upper() for section, names in SECTIONS.items() for name in names
}
# In these, `limits.sends_in_flight_max` is a field of `welcome` and not a setting.
PROTOCOL_DOCUMENTS = {"docs/protocol.md", "docs/sdk.md"}
# Variables of deployment files, such as the image: `${CHAT_IMAGE}`.
DEPLOYMENT_VARIABLES = {
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
    """Run a check on all documents in one test, because a test for each would be slower."""

    def test() -> None:
        problems = {}
        for document in documents():
            try:
                check(document)
            except AssertionError as exc:
                problems[document.name] = str(exc)
        assert problems == {}

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


@each_document
def test_each_command_in_a_document_exists(document: Document) -> None:
    """The command, its subcommand, its options, and the choices of its arguments are checked."""
    problems = {f"chatserver {each}": check_command(each) for each in commands_of(document)}

    assert {each: error for each, error in problems.items() if error} == {}


@each_document
def test_each_setting_in_a_document_exists(document: Document) -> None:
    """A name may be a variable or a prefix of several (`CHAT_GATEWAY_*`)."""
    mentioned = set(re.findall(rf"\b{PREFIX}[A-Z0-9_]+", document.text_without("mermaid")))
    known = VARIABLES | DEPLOYMENT_VARIABLES

    unknown = {
        name
        for name in mentioned - known
        if not (name.endswith("_") and any(each.startswith(name) for each in known))
    }

    assert unknown == set()


@each_document
def test_each_dotted_setting_in_a_document_exists(document: Document) -> None:
    """Names of files and names in the code may have the same form as `section.name`."""
    if document.name in PROTOCOL_DOCUMENTS:
        return
    pattern = re.compile(r"([a-z]+)\.([a-z][a-z0-9_]*)")
    found = filter(None, (pattern.fullmatch(code) for code in document.inline))

    problems = {
        each[0]
        for each in found
        if each[1] in SECTIONS
        and each[2] not in SECTIONS[each[1]] | FILE_TYPES
        and not is_in_source(each[0])
    }

    assert problems == set()


@each_document
def test_each_metric_in_a_document_exists(document: Document) -> None:
    """Names must be as exported: a counter ends in `_total`, or queries of it find nothing."""
    mentioned = {name for code in document.inline for name in re.findall(r"\bchatserver_\w+", code)}
    known = exported_metrics()

    unknown = {
        name
        for name in mentioned - known
        if not (name.endswith("_") and any(each.startswith(name) for each in known))
    }

    assert unknown == set()


@functools.cache
def exported_metrics() -> set[str]:
    """Return the metric names that Prometheus stores."""
    families = [
        family
        for each in vars(metrics).values()
        if not isinstance(each, type) and hasattr(each, "describe")
        for family in each.describe()
    ]
    suffixes = {"counter": ("_total",), "histogram": ("", "_bucket", "_sum", "_count")}
    return {each.name + suffix for each in families for suffix in suffixes.get(each.type, ("",))}


def is_in_source(name: str) -> bool:
    """Return whether a name is a module or occurs in the source, such as a log event."""
    return (ROOT / "chatserver" / name.replace(".", "/")).with_suffix(".py").exists() or any(
        name in text and re.search(rf"(?<![\w.]){re.escape(name)}\b", text) for text in sources()
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
def test_each_link_in_a_document_resolves(document: Document) -> None:
    """A link leads to a file or folder of the repository, and to an existing heading."""
    broken = set()
    for link in document.links:
        path, _, anchor = link.partition("#")
        target = (document.path.parent / path).resolve() if path else document.path
        exists = target.exists() and target.is_relative_to(ROOT)
        if exists and anchor and target.suffix == ".md":
            exists = anchor in read_document(target).anchors
        if not exists:
            broken.add(link)

    assert broken == set()


@each_document
def test_each_file_in_a_document_exists(document: Document) -> None:
    """Inline code that is a path from the root is checked."""
    pattern = re.compile(r"(?:chatserver|workers|tests|docs|deploy)/[\w./-]*[\w/]")
    mentioned = {code for code in document.inline if pattern.fullmatch(code)}

    assert {name for name in mentioned if not (ROOT / name).exists()} == set()


@each_document
def test_each_test_in_a_document_exists(document: Document) -> None:
    """The name is that of a test function or of a test file."""
    mentioned = {name for code in document.inline for name in re.findall(r"\b(test_\w+)\b", code)}

    assert mentioned - TESTS == set()


@each_document
def test_each_make_target_and_variable_in_a_document_exists(document: Document) -> None:
    """Example: `make test PYTEST_ARGS=tests/unit`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [each for each in code_of(document) if re.match(r"make [a-z]", each)]

    mentioned = {word for line in lines for word in re.findall(r"^make ([a-z]+)", line)}
    variables = {word for line in lines for word in re.findall(r" ([A-Z_]+)=", line)}
    assert mentioned - set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE)) == set()
    assert {name for name in variables if f"$({name})" not in makefile} == set()


@each_document
def test_each_module_run_in_a_document_exists_with_its_options(document: Document) -> None:
    """Example: `python -m tests.benchmarks.logins --users 2000`."""
    problems = []
    for line in code_of(document):
        for name, rest in re.findall(r"\bpython3? -m ([\w.]+)([^;&|]*)", line):
            if name.split(".")[0] not in ("chatserver", "workers", "tests"):
                continue
            path = (ROOT / name.replace(".", "/")).with_suffix(".py")
            if not path.is_file() and importlib.util.find_spec(name) is None:
                problems.append(name)
            elif name.startswith("tests.benchmarks."):
                source = "".join(each.read_text("utf-8") for each in path.parent.rglob("*.py"))
                options = re.findall(r"(?<!\S)\[?(--[a-z-]+)", rest)
                problems += [
                    f"{name} {each}"
                    for each in options
                    if not re.search(rf'["/]{each}["/]', source)
                ]

    assert problems == []


def code_of(document: Document) -> list[str]:
    """Return all inline code and shell commands of a document."""
    return [*document.inline, *document.shell_lines()]


@each_document
def test_each_table_in_a_document_is_valid(document: Document) -> None:
    """A blank line between rows or an extra cell breaks the rendered table."""
    problems = []
    for block in re.findall(r"(?:^\|.*\n?)+", document.prose, re.MULTILINE):
        head, *rest = [_cells(row) for row in block.splitlines()]
        if not rest or not all(re.fullmatch(r" *:?-{3,}:? *", cell) for cell in rest[0]):
            problems.append(block.splitlines()[0])
        problems += ["|".join(row) for row in rest if len(row) != len(head)]

    assert problems == []


def _cells(row: str) -> list[str]:
    """Split a row at its bars, except escaped ones."""
    return re.split(r"(?<!\\)\|", row.strip())[1:-1]


def test_no_text_tells_readers_to_install_a_name_that_is_not_ours() -> None:
    """The package is not on PyPI: whoever registers its name there would own those readers."""
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for folder in ("chatserver", "workers", "deploy", "clients"):
        paths += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".md", ".py", ".sh", ".yaml", ".tf", ".txt")
            and "node_modules" not in path.parts
        ]

    named = {
        str(path.relative_to(ROOT))
        for path in paths
        if re.search(r"tierchat\[|install\s+['\"]?tierchat\b", path.read_text("utf-8"))
    }

    assert named == set()


def test_document_parser_finds_commands_settings_and_links() -> None:
    """A parser that finds nothing would make all checks pass."""
    found = {document.name: document for document in documents()}

    readme = found["README.md"]
    assert "worker all" in list(commands_of(readme))
    assert any("CHAT_REDIS_URL" in line for line in readme.shell_lines())
    assert "docs/protocol.md" in readme.links
    assert "large-chats" in found["docs/protocol.md"].anchors
    assert len([name for name in found if name.startswith("docs/decisions/")]) >= 25


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("gatewya", "no command"),
        ("worker persits", "cannot be"),
        ("worker persist|repiar", "cannot be"),
        ("gateway --proceses 4", "has no option"),
        ("gateway --processes", "requires a value"),
        ("keys list extra", "takes no argument"),
        ("keys creat|list", "no command"),
    ],
)
def test_invalid_command_is_detected(text: str, error: str) -> None:
    """This proves that the check can fail."""
    assert error in str(check_command(text))


@pytest.mark.parametrize(
    "text",
    [
        "worker persist|repair",
        "companion create|list",
        "keys rotate <id> --overlap 3600",
        "restore …",
    ],
)
def test_command_with_placeholders_is_valid(text: str) -> None:
    """Documents contain placeholders that no shell would accept."""
    assert check_command(text) is None
