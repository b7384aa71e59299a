"""The API documentation at /docs in a browser, and the curl commands of the README."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, expect

from tests.e2e.web.stack_support import PATIENCE_MS, WebStack

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_docs_page_shows_every_operation_without_external_resources(
    web: WebStack, browser: Browser
) -> None:
    """The page shows the OpenAPI document on a phone, without console errors."""
    context = await browser.new_context(viewport={"width": 360, "height": 740})
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    console: list[str] = []
    requested: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))

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

    assert console == []
    assert {url.startswith(web.url) for url in requested} == {True}
    assert width <= 360  # nothing is wider than the phone


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_readme_curl_commands_work(web: WebStack) -> None:
    """The commands of the README work with a running server."""
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
