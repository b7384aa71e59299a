"""The stack of the browser tests: all servers and the pages that they serve.

The fixtures are in `tests.e2e.web.fixtures`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import ConsoleMessage, Page
from pydantic import SecretStr

from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.config import Cold
from chatserver.dev.servers import (
    ACCESS_KEY,
    HOST,
    SECRET_KEY,
    Launch,
    Server,
    is_http_ready,
    ministack_launch,
)
from chatserver.features.push.providers.vapid import derive_vapid_pair
from tests.support.fork_server import CLI, ForkedServer
from tests.support.servers.processes import free_port
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.stack import WORKERS, Stack, open_stack, start

CHROMIUM_ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A microphone that beeps, and permission to use it.
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
# Only a failure takes this long. A page waits up to ten seconds before it reconnects. On a busy
# machine, starting a gateway, a login or a picture takes about as long.
PATIENCE_MS = 60_000
WIDE = (1280, 800)
PHONE = (360, 740)
INBOX_MAX = 60  # events that a device may miss before it restarts from a snapshot
INSECURE_HOST = "chat.test"  # a browser maps it to this machine; see test_refused_storage
ADMIN = "operator"  # may open the operations page
USERS = [f"user-{number}" for number in range(300)]
PUSH_VAPID = derive_vapid_pair("the browser tests")
PUSH_SUBJECT = "mailto:ops@chat.example"
PUSH_ENV = {
    "CHAT_NOTIFY_VAPID_PRIVATE": PUSH_VAPID[0],
    "CHAT_NOTIFY_VAPID_PUBLIC": PUSH_VAPID[1],
    "CHAT_NOTIFY_SUBJECT": PUSH_SUBJECT,
    "CHAT_NOTIFY_DELAY_S": "0.1",
    "chatserver.features.push.worker.push_worker.POLL_MS": "50",
    "CHAT_OUTBOUND_ALLOW_PRIVATE": '["127.0.0.0/8"]',
    "chatserver.features.link_previews.model.PRIVATE_NETWORKS": "127.0.0.0/8",
    # A response of some hundred words takes longer than the test.
    "chatserver.features.companions.providers.registry.SCRIPTED_DELTA_MS": "400",
    # The page waits ten seconds for a response; a slow machine must not cause an error.
    "CHAT_REDIS_CALL_TIMEOUT_S": "9",
    "CHAT_WARM_CALL_TIMEOUT_S": "9",
    "CHAT_GATEWAY_RPC_TIMEOUT_S": "9",
    "chatserver.features.social.worker.counters.FLUSH_S": "0.2",
    "chatserver.features.privacy.worker.job_worker.POLL_S": "0.2",
    "chatserver.features.privacy.worker.erasure.SETTLE_S": "0.3",
}
# Runs before the scripts of the page and records violations of the content security policy.
RECORD_VIOLATIONS = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.__violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class Ports(NamedTuple):
    """The ports of the page, of the page behind the link, and of the gateway."""

    api: int
    far_api: int
    gateway: int


class WebStack:
    """A stack that serves the page at `url`.

    At `far_url`, page and gateway are behind links that can be broken.
    """

    def __init__(
        self, stack: Stack, link: TcpProxy, page_link: TcpProxy, ports: Ports, users: Sequence[str]
    ) -> None:
        self.stack = stack
        self.link = link
        self.page_link = page_link
        self.url = f"http://{HOST}:{ports.api}/"
        self.far_url = f"http://{HOST}:{ports.far_api}/"
        self.insecure_url = f"http://{INSECURE_HOST}:{ports.api}/"
        self._ports = ports
        self._demo_users = [*users, ADMIN]
        self._users = iter(users)

    def start_api(self, port: int, gateway_port: int) -> Server:
        launch = Launch(
            f"api-{port}",
            [*CLI, "api"],
            port,
            self.stack.folder,
            lambda: is_http_ready(port, "/healthz"),
            self.stack.environment(
                CHAT_API_HOST=HOST,
                CHAT_API_PORT=str(port),
                CHAT_API_GATEWAY_URL=f"ws://{HOST}:{gateway_port}/",
                CHAT_API_DEMO_USERS=json.dumps(self._demo_users),
                CHAT_AUTH_ADMINS=json.dumps([ADMIN]),
                CHAT_AUTH_COOKIE_SECURE="false",
                CHAT_AUTH_ARGON2_MEMORY_KIB="1024",
            ),
        )
        return start(ForkedServer(launch))

    def new_users(self, count: int) -> list[str]:
        """Return unused users."""
        return list(itertools.islice(self._users, count))

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Make page and gateway unreachable at `far_url` until the block ends."""
        links = (self.page_link, self.link)
        for link in links:
            link.refuse()
        try:
            yield
        finally:
            for link in links:
                link.end_faults()

    def kill_gateway(self) -> None:
        self.stack.gateways.pop().kill()

    def start_gateway(self) -> None:
        """Start a gateway on the port of the killed one."""
        origins = json.dumps(list_origins(self._ports))
        self.stack.start_gateway(self._ports.gateway, CHAT_GATEWAY_ORIGINS=origins)


@contextlib.asynccontextmanager
async def open_web_stack(folder: Path, users: Sequence[str]) -> AsyncIterator[WebStack]:
    """Start the stack with the command line; `users` can log in without a password."""
    async with contextlib.AsyncExitStack() as servers:
        link = await servers.enter_async_context(TcpProxy(free_port()))
        page_link = await servers.enter_async_context(TcpProxy(free_port()))
        ports = Ports(free_port(), page_link.port, link.target_port)
        s3 = Server(ministack_launch(folder / "s3", free_port(), service="s3"))
        cold = cold_of(s3.endpoint, ports)
        env = {"CHAT_REDIS_INBOX_MAX": str(INBOX_MAX), **PUSH_ENV, **environment_of(cold)}
        env["CHAT_SEARCH_INDEX"] = str(folder / "search")
        servers.callback(s3.kill)
        s3.start()
        workers = ((*WORKERS, "media", "exports", "erasures", "assistant", "counters", "timeline"),)
        workers = ((*workers[0], "search"),)
        stack = servers.enter_context(
            open_stack(folder, gateways=0, workers=workers, fsync="no", env=env)
        )
        async with open_s3(cold) as store:
            await apply_bucket(store, cold)
        made = WebStack(stack, link, page_link, ports, users)
        made.start_gateway()
        apis = [
            made.start_api(ports.api, ports.gateway),
            made.start_api(page_link.target_port, link.port),
        ]
        await stack.add_users([*users, ADMIN])
        try:
            yield made
        finally:
            for api in apis:
                with contextlib.suppress(ProcessLookupError):
                    api.kill()


def list_origins(ports: Ports) -> list[str]:
    """Return the origins of the pages."""
    pages = [f"{HOST}:{ports.api}", f"{HOST}:{ports.far_api}", f"{INSECURE_HOST}:{ports.api}"]
    return [f"http://{page}" for page in pages]


def cold_of(endpoint: str, ports: Ports) -> Cold:
    return Cold(
        endpoint=endpoint,
        access_key=ACCESS_KEY,
        secret_key=SecretStr(SECRET_KEY),
        call_timeout_s=PATIENCE_MS / 1000,
        origins=list_origins(ports),
    )


def environment_of(cold: Cold) -> dict[str, str]:
    return {
        "CHAT_COLD_ENDPOINT": str(cold.endpoint),
        "CHAT_COLD_ACCESS_KEY": ACCESS_KEY,
        "CHAT_COLD_SECRET_KEY": SECRET_KEY,
    }


def record_console(page: Page, console_errors: list[str]) -> None:
    """Record console errors, warnings and uncaught exceptions."""

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "blocked by Playwright" not in message.text:
            console_errors.append(message.text)

    page.on("console", on_console)
    page.on("pageerror", lambda error: console_errors.append(f"uncaught: {error}"))
