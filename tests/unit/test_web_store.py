"""Runs the web client's own tests: with Node where it is, in Chromium where it is not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.async_api import Route, async_playwright

ROOT = Path(__file__).resolve().parents[2]
TESTS = Path(__file__).parent / "web"
FILES = sorted(TESTS.glob("*.test.mjs"))
CHROMIUM = "/usr/bin/chromium"
ORIGIN = "http://web.test"
WEB = ROOT / "chatserver" / "web"
# Of the page /docs, and what the browser starts for notifications.
ELSEWHERE = {"docs.js", "styles/docs.css", "push_service_worker.js"}
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment"
    r"|DOMParser|srcdoc|\beval\(|new Function|setAttribute\([\"']on|javascript:|cssText"
)


def test_web_client_in_node_keeps_its_promises() -> None:
    """The store, the outbox, the rows, the connection and the texts do what their tests say."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node here; the same tests run in Chromium")

    done = subprocess.run(  # our own files, with a fixed program
        [node, "--test", *map(str, FILES)], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"# pass {_count_tests()}" in done.stdout


async def test_web_client_in_chromium_keeps_its_promises() -> None:
    """The same tests hold in the engine that people really use."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no {CHROMIUM} here; the same tests run in Node")

    result = await _run_in_chromium()

    assert result["failed"] == []
    assert result["count"] == _count_tests()


def test_web_client_tests_have_somewhere_to_run() -> None:
    """At least one of Node and Chromium is there, so the tests are never skipped in silence."""
    assert FILES
    assert shutil.which("node") is not None or Path(CHROMIUM).exists()


def test_web_index_names_every_module_and_style() -> None:
    """The browser fetches all files at once instead of finding them one behind the other."""
    named = set(re.findall(r'(?:href|src)="([^"]+\.(?:js|css))"', (WEB / "index.html").read_text()))

    there = {path.relative_to(WEB).as_posix() for path in _web_files()}
    assert named == there - ELSEWHERE


def test_web_files_have_no_way_to_turn_text_into_markup() -> None:
    """Text becomes text nodes only: none of the ways to parse or run a text is used anywhere."""
    found = [
        f"{path.name}: {match[0]}"
        for path in _web_files()
        if path.suffix == ".js"
        for match in FORBIDDEN.finditer(path.read_text())
    ]

    assert found == []
    assert re.search(r"<style|style=|\son\w+=|<script>", (WEB / "index.html").read_text()) is None


def _web_files() -> list[Path]:
    return sorted(path for path in WEB.rglob("*") if path.suffix in (".js", ".css"))


def _count_tests() -> int:
    return sum(path.read_text().count('\ntest("') for path in FILES)


async def _run_in_chromium() -> dict[str, object]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        try:
            page = await browser.new_page()
            await page.route(f"{ORIGIN}/**", _serve)
            await page.goto(f"{ORIGIN}/tests.html")
            result: dict[str, object] = await page.evaluate("window.runTests()")
            return result
        finally:
            await browser.close()


async def _serve(route: Route) -> None:
    """Answer from the repository; the network is not asked."""
    path = route.request.url.removeprefix(ORIGIN + "/")
    if path == "tests.html":
        await route.fulfill(body=_page(), content_type="text/html; charset=utf-8")
        return
    file = ROOT / path
    if file.is_file() and file.is_relative_to(ROOT):
        await route.fulfill(body=file.read_text(), content_type="text/javascript; charset=utf-8")
    else:
        await route.fulfill(status=404)


def _page() -> str:
    shims = "/" + (TESTS / "browser").relative_to(ROOT).as_posix()
    imports = {
        "node:test": f"{shims}/node_test.js",
        "node:assert/strict": f"{shims}/node_assert.js",
    }
    files = json.dumps(["/" + path.relative_to(ROOT).as_posix() for path in FILES])
    return f"""<!doctype html><meta charset="utf-8">
<script type="importmap">{json.dumps({"imports": imports})}</script>
<script type="module">
window.runTests = async () => {{
  for (const file of {files}) await import(file);
  const {{ runAll }} = await import("node:test");
  return runAll();
}};
</script>"""
