"""Operations and moderation in the web client: charts, and tools with an API key."""

from __future__ import annotations

import re

from playwright.async_api import Browser, Route, expect

from tests.e2e.web.pages_support import SMALL, check_page, open_caller, open_page
from tests.e2e.web.stack_support import ADMIN, WebStack
from tests.security.support.users import make_key


async def test_admin_reads_charts_by_keyboard_and_as_a_table(
    web: WebStack, browser: Browser
) -> None:
    """Live metrics on a phone: a chart with arrow keys, its table, processes and cost."""
    async with open_page(web, browser, ADMIN, "operations", size=SMALL) as page:
        chart = page.get_by_role("slider", name="Connections", exact=True)
        await expect(chart).to_have_attribute("aria-valuetext", re.compile("sessions [1-9]"))
        await chart.focus()
        await page.keyboard.press("Home")
        await expect(chart).to_have_attribute("aria-valuenow", "0")
        await page.keyboard.press("Escape")
        figure = page.get_by_role("figure", name="Connections", exact=True)
        await figure.get_by_text("View as table").click()
        await expect(figure.get_by_role("row").nth(1)).to_contain_text(
            re.compile(r"\d\d:\d\d:\d\d")
        )
        processes = page.get_by_role("region", name="Processes", exact=True).last
        for kind in ("gateway", "worker", "api"):
            await expect(processes.get_by_text(re.compile(f"^{kind}")).first).to_be_visible()
        await check_page(page)
        await page.get_by_role("tab", name="Cost").click()
        await expect(page.get_by_text("At the current rate")).to_be_visible()
        await check_page(page)


async def test_operations_report_an_outage_and_recover(web: WebStack, browser: Browser) -> None:
    """Metrics that are not updated any more are marked as stale, with the reason."""
    async with open_page(web, browser, ADMIN, "operations", service_workers="block") as page:
        await expect(page.get_by_text("Live, last 10 minutes")).to_be_visible()
        await page.route("**/v1/admin/overview*", _abort)
        reason = page.get_by_role("list", name="Alerts").get_by_text("Can't reach the server.")
        await expect(reason).to_be_visible()
        await expect(page.get_by_text(re.compile("^Last updated "))).to_be_visible()
        await check_page(page)

        await page.unroute("**/v1/admin/overview*", _abort)
        await expect(page.get_by_text("Live, last 10 minutes")).to_be_visible()
        await expect(reason).to_have_count(0)


async def test_low_window_shows_all_sections(web: WebStack, browser: Browser) -> None:
    """At 200 % zoom, an administrator sees all sections of the navigation without scrolling."""
    async with open_page(web, browser, ADMIN, "operations", size=(720, 450)) as page:
        links = page.get_by_role("navigation").get_by_role("link")
        await expect(links).to_have_count(8)
        for number in range(8):
            await expect(links.nth(number)).to_be_in_viewport(ratio=1)
        await expect(page.get_by_role("link", name="Settings")).to_be_visible()


async def _abort(route: Route) -> None:
    await route.abort()


async def test_user_without_admin_rights_sees_no_metrics(web: WebStack, browser: Browser) -> None:
    """The page says who may see it, and the navigation does not link to it."""
    (ann,) = web.new_users(1)
    async with open_page(web, browser, ann, "operations") as page:
        await expect(page.get_by_text("Admins only")).to_be_visible()
        navigation = page.get_by_role("navigation", name="Main")
        await expect(navigation.get_by_role("link", name="Operations")).to_have_count(0)
        await check_page(page)


async def test_operator_bans_broadcasts_and_holds_with_a_key(
    web: WebStack, browser: Browser
) -> None:
    """One key works for all tools and is only in memory: a reload discards it."""
    ann, ben = web.new_users(2)
    key = await make_key(
        web.stack, "users:read", "users:write", "broadcast", "holds", "moderate", "messages:delete",
        "chats:read",
    )  # fmt: skip
    async with open_caller(web, ann) as a, open_caller(web, ben) as b:
        chat = await a.open_direct(ben)
        seq = await a.send(chat, "Buy now")
        await b.call("PUT", f"/v1/chats/{chat}/messages/{seq}/report", {"reason": "an ad"})

    async with open_page(web, browser, ADMIN, "operations?tab=broadcasts") as page:
        await page.get_by_role("textbox", name="API key").fill(key)
        await page.get_by_role("button", name="Use key").click()
        await page.get_by_label("Recipients").fill(f"{ann} {ben}")
        await page.get_by_label("Message", exact=True).fill("Maintenance at noon")
        await check_page(page)
        await page.get_by_role("button", name="Send broadcast").click()
        await expect(page.get_by_text("2 of 2 sent")).to_be_visible()

        await page.get_by_role("tab", name="Users").click()
        await page.get_by_label("Username").fill(ann)
        await page.get_by_role("button", name="Find", exact=True).click()
        await expect(page.get_by_text("Not banned")).to_be_visible()
        await page.get_by_role("button", name="Ban from server").click()
        await page.get_by_role("dialog").get_by_role("button", name="Ban from server").click()
        await page.get_by_role("button", name="Lift ban").click()
        await expect(page.get_by_text("Not banned")).to_be_visible()
        await check_page(page)

        await page.get_by_role("link", name="Moderation").click()
        await page.get_by_role("tab", name="All reports").click()
        report = page.get_by_role("article").filter(has_text="an ad")
        await expect(report).to_contain_text("Buy now")
        await report.get_by_role("button", name="Delete message").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete message").click()
        await expect(report).to_contain_text("was deleted")
        await check_page(page)
        await report.get_by_role("button", name=f"Resolve the report by {ben}").click()
        await expect(report).to_have_count(0)

        await page.get_by_role("tab", name="Legal holds").click()
        await page.get_by_role("button", name="Place a hold").click()
        await page.get_by_label("Chat ID").fill(chat)
        await page.get_by_label("Reason").fill("Case 7")
        await page.get_by_role("dialog").get_by_role("button", name="Place a hold").click()
        hold = page.get_by_role("region", name=chat)
        await expect(hold).to_contain_text("Case 7")
        await check_page(page)
        await hold.get_by_role("button", name=f"Release the hold on {chat}").click()
        await page.get_by_role("dialog").get_by_role("button", name="Release").click()
        await expect(page.get_by_text("Hold released.")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("textbox", name="API key")).to_be_visible()
