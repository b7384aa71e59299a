"""The API's own documentation: the page /docs in a real browser, and the README's commands."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, expect

from tests.e2e.web.stack_support import PATIENCE_MS, WebStack

pytest_plugins = ["tests.e2e.web.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_docs_page_shows_every_operation_and_loads_nothing_from_elsewhere(
    web: WebStack, browser: Browser
) -> None:
    """The document that the server serves, readable, without a foreign script or a broken rule."""
    context = await browser.new_context(viewport={"width": 360, "height": 740})
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))

    await page.goto(f"{web.url}docs")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("HTTP API")
    spec = await (await page.request.get(f"{web.url}v1/openapi.json")).json()
    operations = sum(len(item) for item in spec["paths"].values())
    await expect(page.locator("details.operation")).to_have_count(operations)
    await page.get_by_role("link", name="List messages", exact=True).click()
    opened = page.locator("details.operation[open]")
    await expect(opened).to_have_count(1)
    await expect(opened).to_contain_text("/v1/chats/{chat}/messages")
    await expect(opened.get_by_role("rowheader", name="before")).to_be_visible()
    width = await page.evaluate("document.documentElement.scrollWidth")
    await context.close()

    assert said == []
    assert {url.startswith(web.url) for url in asked} == {True}
    assert width <= 360  # nothing sticks out of a phone


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_readme_lines_of_curl_do_what_they_say(web: WebStack) -> None:
    """The README's commands work against what `make run` starts."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```sh\n(api=.*?)```", readme, re.DOTALL)
    script = script.replace("http://127.0.0.1:8080", web.url.rstrip("/"))
    alice, bob = web.new_users(2)
    script = script.replace("alice", alice).replace("/bob", f"/{bob}")
    script = script.replace("\ncurl", "\necho; curl")

    process = await asyncio.create_subprocess_exec(
        "bash", "-euc", script, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)

    me, sent, history, chats = [msgspec.json.decode(line) for line in output.split(b"\n") if line]
    assert process.returncode == 0
    assert me["user"] == alice
    assert (sent["seq"], sent["dup"]) == (1, False)
    assert [message["body"] for message in history["messages"]] == ["Lunch at one?"]
    assert [line["chat"] for line in chats["items"]] == [history["messages"][0]["chat"]]
