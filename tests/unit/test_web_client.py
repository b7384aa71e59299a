"""Rules for the sources of clients/web."""

from __future__ import annotations

import re

from tests.support.web_client import PACKAGE, ROOT

REFERENCE = ROOT / "chatserver" / "api" / "reference_page"
SOURCES = [
    path
    for folder in (PACKAGE / "src", PACKAGE / "plugins", PACKAGE / "tests", REFERENCE)
    for path in sorted(folder.rglob("*"))
    if path.suffix in (".ts", ".tsx", ".mjs", ".js", ".css")
]
LINE_CHARS_MAX, FILE_LINES_MAX, FOLDER_MODULES_MAX = 100, 500, 25
# All ways to parse text as markup, to run it, or to disable compiler errors.
FORBIDDEN = re.compile(
    r"\.(inner|outer)HTML|dangerouslySetInnerHTML|insertAdjacentHTML|document\.write"
    r"|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function|setAttribute\([\"']on"
    r"|javascript:|cssText|@ts-ignore|@ts-nocheck"
)


def test_web_client_sources_have_bounded_lines_files_and_folders() -> None:
    """Python sources have the same limits."""
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > LINE_CHARS_MAX
    ]
    large = [path.name for path in SOURCES if path.read_text("utf-8").count("\n") > FILE_LINES_MAX]
    modules = [path.parent for path in SOURCES if path.suffix in (".ts", ".tsx")]

    assert (long, large) == ([], [])
    assert max(map(modules.count, modules)) <= FOLDER_MODULES_MAX


def test_web_files_never_parse_text_as_markup() -> None:
    """Texts become text nodes or React elements; pages have no inline code or style."""
    found = [
        f"{path.name}: {match[0]}"
        for path in SOURCES
        if path.parent != PACKAGE / "tests"  # they contain hostile texts
        for match in FORBIDDEN.finditer(path.read_text("utf-8"))
    ]
    inline = re.compile(r"<style|style=|\son\w+=|<script>")

    assert found == []
    for page in (PACKAGE / "index.html", REFERENCE / "index.html"):
        assert inline.search(page.read_text("utf-8")) is None


def test_web_client_uses_storage_and_secure_apis_in_one_module_each() -> None:
    """Browsers refuse these APIs, or have them on pages with HTTPS only."""
    modules = {
        r"\b(local|session)Storage\b": {"browser_storage.ts", "theme.js"},
        r"\bindexedDB\b": {"indexeddb_store.ts", "session.ts"},
        r"\bnavigator\.locks\b": {"session.ts", "shared_backend.ts"},
        r"\bnew BroadcastChannel\b": {"shared_backend.ts"},
        r"\bnavigator\.clipboard\b": {"clipboard.ts"},
        r"\bcaches\.(open|has|match|keys|delete)\b": {
            "service_worker.ts",
            "share_target.ts",
            "shared_content.ts",
        },
        r"\brandomUUID\b": set(),
        r"\bsubtle\b": {"sha256.ts"},
        r"\bdocument\.cookie\b": set(),
    }
    sdk = ROOT / "clients" / "typescript" / "src"
    sources = [*(PACKAGE / "src").rglob("*.ts*"), *(PACKAGE / "public").glob("*.js")]
    texts = {
        path.name: re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
        for path in (*sources, *sdk.rglob("*.ts"))
    }

    for pattern, allowed in modules.items():
        found = {name for name, text in texts.items() if re.search(pattern, text)}
        assert found <= allowed, pattern


def test_web_client_handles_escape_in_one_place() -> None:
    """Other handlers may clear their own field, but close no layer."""
    own = {"use_layer.ts", "ChatListPage.tsx", "Chart.tsx"}  # the filter; the cursor of a chart

    found = {path.name for path in SOURCES if '"Escape"' in path.read_text("utf-8")}

    assert found <= own
