"""Content that another application shares with the web client."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse

import pytest
from playwright.async_api import expect

from tests.e2e.web.client_support import WORKER_READY, Visit, Visitor
from tests.e2e.web.pages_support import make_picture, open_caller
from tests.e2e.web.stack_support import PATIENCE_MS, WebStack
from tests.support.servers.processes import eventually

# Posts a form like the operating system when an application shares content.
SHARE = """([action, texts, files]) => {
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action, enctype: "multipart/form-data" });
  for (const [name, value] of Object.entries(texts)) {
    form.append(Object.assign(document.createElement("input"), { name, value }));
  }
  const transfer = new DataTransfer();
  for (const [name, type, data] of files) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type }));
  }
  const input = Object.assign(document.createElement("input"), { type: "file", multiple: true });
  Object.assign(input, { name: "files", files: transfer.files });
  form.append(input);
  document.body.append(form);
  form.submit();
}"""
# The system opens shares in the window of the installed application.
APP_WINDOW = """const find = matchMedia.bind(window);
window.matchMedia = (query) =>
  query === "(display-mode: browser)" ? { matches: false } : find(query);"""
IS_CONSUMED = "caches.has('shared-content').then((isWaiting) => !isWaiting)"


async def share(person: Visitor) -> None:
    page = person.page
    link = await page.locator("link[rel=manifest]").evaluate("(link) => link.href")
    manifest = json.loads(await (await person.context.request.get(link)).text())
    target = manifest["share_target"]
    assert (target["method"], target["enctype"]) == ("POST", "multipart/form-data")
    action = urllib.parse.urljoin(link, target["action"])
    texts = {
        target["params"]["title"]: "A page",
        target["params"]["text"]: "Read https://page.example/",
        target["params"]["url"]: "https://page.example/",
    }
    data = base64.b64encode(make_picture("green")).decode()
    await page.goto("about:blank")
    await page.evaluate(SHARE, [action, texts, [["shared.png", "image/png", data]]])


async def choose_chat(person: Visitor, title: str) -> None:
    await expect(person.page.get_by_role("heading", name="Share to")).to_be_visible()
    await expect(person.page.get_by_text("1 file")).to_be_visible()
    await person.page.get_by_role("main").get_by_role("button", name=title).click()


async def expect_content(person: Visitor) -> None:
    """Wait until the composer of the open chat has the content and no upload is pending."""
    await expect(person.field).to_have_value("A page\nRead https://page.example/")
    await expect(person.page.get_by_role("button", name="Remove shared.png")).to_be_visible()
    await eventually(lambda: person.page.evaluate(IS_CONSUMED), PATIENCE_MS / 1000)


async def test_share_from_another_application_goes_to_the_chosen_chat(
    web: WebStack, visit: Visit
) -> None:
    """Text and files from the manifest's share target are in the composer of the chat."""
    ann, ben = web.new_users(2)
    alice, bob = await visit(ann, is_logged_in=False), await visit(ben, is_logged_in=False)
    await alice.context.add_init_script(APP_WINDOW)
    await bob.log_in()
    await alice.log_in()
    await alice.start_chat(ben)
    await alice.page.evaluate(WORKER_READY)

    await share(alice)
    await choose_chat(alice, ben)

    await expect_content(alice)
    await alice.field.press("Enter")
    await bob.open_chat(ann)
    tile = bob.messages("A page").get_by_role("button", name="Open image shared.png")
    await expect(tile.locator("img")).to_be_visible()
    await alice.page.goto(f"{alice.url}share")
    await expect(alice.page.get_by_text("There is nothing to share.")).to_be_visible()
    await bob.check_is_clean()


async def test_share_refused_by_a_chat_is_kept_for_another_one(web: WebStack, visit: Visit) -> None:
    """The content is kept, and the user can choose another chat, also after a reload."""
    ann, ben = web.new_users(2)
    alice = await visit(ann, is_logged_in=False)
    await alice.context.add_init_script(APP_WINDOW)
    await alice.log_in()
    await alice.start_chat(ben)
    async with open_caller(web, ben) as caller:
        group = await caller.create_group("Quiet group", ann)
        await caller.send(group, "Only admins write here")
        path = f"/v1/chats/{group}/members/{ann}/mute"
        await caller.call("PUT", path, {"mute_s": 3600})
    await expect(alice.row("Quiet group")).to_be_visible()
    await alice.page.evaluate(WORKER_READY)

    await share(alice)
    await choose_chat(alice, "Quiet group")
    await expect(alice.page.get_by_text("An admin has muted you in this group.")).to_be_visible()
    await alice.page.reload()
    await alice.page.get_by_role("button", name="Choose another chat").click()
    await choose_chat(alice, ben)

    await expect_content(alice)
    await alice.page.goto(f"{alice.url}share")
    await expect(alice.page.get_by_text("There is nothing to share.")).to_be_visible()
    await alice.check_is_clean()


async def test_share_before_the_service_worker_runs_asks_to_share_again(
    web: WebStack, visit: Visit
) -> None:
    """Then the server receives the request; it stores nothing and asks to share again."""
    (ann,) = web.new_users(1)
    alice = await visit(ann, service_workers="block")

    await share(alice)

    await expect(alice.page.get_by_text("Please share it again.")).to_be_visible()
    await alice.page.get_by_role("button", name="Back to chats").click()
    await alice.wait_for_list()
    await alice.check_is_clean()


@pytest.mark.parametrize("policy", ["unsafe-url", "origin", "no-referrer", "sandbox"])
async def test_form_of_another_site_fills_nothing(web: WebStack, visit: Visit, policy: str) -> None:
    """Another site's page cannot put texts or files into the share target of a browser tab."""
    (ann,) = web.new_users(1)
    alice = await visit(ann)
    page = alice.page
    await page.evaluate(WORKER_READY)
    form = (
        f"<meta name=referrer content={policy if policy != 'sandbox' else 'origin'}>"
        f"<form method=post enctype=multipart/form-data action={web.url}share target=_top>"
        "<input name=text value='FORGED https://evil.example'></form>"
        "<script>document.forms[0].submit()</script>"
    )
    if policy == "sandbox":
        frame = "allow-scripts allow-forms allow-top-navigation"
        form = f'<iframe sandbox="{frame}" srcdoc="{html.escape(form)}"></iframe>'
    await page.route(
        "http://evil.example/",
        lambda route: route.fulfill(body=form, content_type="text/html"),
    )

    await page.goto("http://evil.example/", wait_until="commit")

    await page.wait_for_url(f"{web.url}share*")
    await expect(page.get_by_text("Content from other websites isn't accepted.")).to_be_visible()
    await expect(page.get_by_text("FORGED")).to_have_count(0)
    await eventually(lambda: page.evaluate(IS_CONSUMED), PATIENCE_MS / 1000)
    await page.goto(f"{web.url}share")
    await expect(page.get_by_text("FORGED")).to_have_count(0)
