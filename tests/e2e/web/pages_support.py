"""Pages of the web client: functions that open them, their data, and accessibility checks."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import io
from collections.abc import AsyncIterator
from typing import Any, Final, Literal

import httpx
from PIL import Image
from playwright.async_api import Browser, Page, expect

from tests.e2e.web.client_support import session_of
from tests.e2e.web.stack_support import PATIENCE_MS, RECORD_VIOLATIONS, WIDE, WebStack
from tests.support.web_client import ROOT

SMALL = (390, 844)
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
AXE = ROOT / "clients" / "web" / "node_modules" / "axe-core" / "axe.min.js"
# Returns violations as text: the rule, its requirement and the elements.
RUN_AXE = """async () => {
  await Promise.all(document.getAnimations().map((each) => each.finished.catch(() => {})));
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 200)}\\n${failureSummary}`));
}"""
# Records a changing canvas for about a second; returns the file as base64.
RECORD_VIDEO = """async () => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 48 });
  const context = canvas.getContext("2d");
  const recorder = new MediaRecorder(canvas.captureStream(20), { mimeType: "video/webm" });
  const pieces = [];
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  const ended = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  for (let frame = 0; frame < 30; frame += 1) {
    context.fillStyle = `hsl(${frame * 12} 80% 50%)`;
    context.fillRect(0, 0, 64, 48);
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
  recorder.stop();
  await ended;
  const bytes = new Uint8Array(await new Blob(pieces).arrayBuffer());
  return btoa(String.fromCharCode(...bytes));
}"""
WIDER_THAN_WINDOW = "document.documentElement.scrollWidth > innerWidth"


@dataclasses.dataclass
class Caller:
    """A user of the HTTP API that prepares the content of a page."""

    user: str
    http: httpx.AsyncClient

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call an operation and return its response."""
        answer = await self.http.request(method, path, json=body)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def create_group(self, name: str, *members: str) -> str:
        made = await self.call("POST", "/v1/chats", {"members": list(members), "name": name})
        return str(made["chat"])

    async def open_direct(self, other: str) -> str:
        return str((await self.call("PUT", f"/v1/direct-chats/{other}"))["chat"])

    async def send(self, chat: str, body: str) -> int:
        sent = await self.call("POST", f"/v1/chats/{chat}/messages", {"body": body})
        return int(sent["seq"])

    async def post(self, content: str) -> str:
        return str((await self.call("POST", "/v1/me/posts", {"content": content}))["id"])


@contextlib.asynccontextmanager
async def open_caller(web: WebStack, user: str) -> AsyncIterator[Caller]:
    """Log in as a demo user of the HTTP API."""
    async with httpx.AsyncClient(base_url=web.url, timeout=PATIENCE_MS / 1000) as http:
        answer = await http.post("/v1/dev/login", json={"user": user})
        assert answer.status_code < 300, answer.text
        http.headers["authorization"] = f"Bearer {answer.json()['token']}"
        yield Caller(user, http)


@contextlib.asynccontextmanager
async def open_page(
    web: WebStack,
    browser: Browser,
    user: str,
    path: str = "chats",
    *,
    size: tuple[int, int] = WIDE,
    **options: Any,
) -> AsyncIterator[Page]:
    """Open a page as a logged-in user; script errors fail the test at the end."""
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce", **options
    )
    context.set_default_timeout(PATIENCE_MS)
    await context.add_init_script(RECORD_VIOLATIONS)
    await context.add_init_script(session_of(user, await read_config(web)))
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        await page.goto(f"{web.url}{path}")
        await expect(page.locator("#content")).to_be_attached()
        yield page
        assert errors == []
        assert await page.evaluate("window.__violations") == []
    finally:
        await context.close()


async def read_config(web: WebStack) -> dict[str, Any]:
    """Return the configuration that the server sends to clients."""
    async with httpx.AsyncClient(base_url=web.url, timeout=PATIENCE_MS / 1000) as http:
        config: dict[str, Any] = (await http.get("/v1/client-config")).json()
        return config


async def check_page(page: Page) -> None:
    """Check the page in light and dark mode: no axe violation, nothing wider than the window."""
    await page.evaluate(AXE.read_text())
    for scheme in SCHEMES:
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        violations = await page.evaluate(RUN_AXE)
        assert not violations, f"{scheme}: " + "\n".join(violations)
    assert not await page.evaluate(WIDER_THAN_WINDOW)


def make_picture(color: str, size: tuple[int, int] = (320, 200)) -> bytes:
    """Return a PNG of one color."""
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


async def record_video(page: Page) -> bytes:
    """Return a WebM video of about a second."""
    return base64.b64decode(await page.evaluate(RECORD_VIDEO))
