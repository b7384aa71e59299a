"""Console output of `chatserver dev`: log lines of all processes, and the URLs to open."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chatserver.dev.data_folder import SETTINGS
from chatserver.dev.demo_users import ADMINS, DEMO_USERS
from chatserver.dev.ports import PAGE_PORT
from chatserver.dev.process_plan import ProcessPlan
from chatserver.telemetry.printable_text import replace_unprintable

_COLORS = {
    "dev": "bold",
    "redis": "red",
    "dynamodb": "yellow",
    "limits": "yellow",
    "s3": "green",
    "tables": "yellow",
    "build": "green",
    "worker": "magenta",
    "gateway": "cyan",
    "api": "blue",
}
_LEVELS = {"debug": "dim", "warning": "yellow", "error": "bold red", "critical": "bold red"}


class Screen:
    """Terminal shared by all processes. `is_verbose`: show the log lines of all servers too."""

    def __init__(self, console: Console | None = None, *, is_verbose: bool = False) -> None:
        self._console = console or Console(highlight=False)
        self.is_verbose = is_verbose

    def print_line(self, name: str, text: str) -> None:
        """Print a line of process `name`."""
        text = replace_unprintable(text)  # piped output may contain control characters
        level = next((word for word in text.split(maxsplit=2)[1:2]), "")
        self._console.print(
            Text.assemble((f"{name:<8} │ ", _COLORS.get(name, "")), (text, _LEVELS.get(level, ""))),
            soft_wrap=True,
        )

    def log(self, text: str) -> None:
        """Print a message of `chatserver dev`, not of one of its processes."""
        self.print_line("dev", text)

    def report_failure(self, name: str, reason: str, tail: list[str], advice: str = "") -> None:
        """Report a process that has ended, with its last log lines and what to do."""
        output = Text("\n".join(replace_unprintable(line) for line in tail) or "(no output)")
        self._console.print(
            Panel(output, title=f"{name} {reason}", border_style="red", expand=False)
        )
        if advice:
            self.log(advice)

    def print_welcome(self, plan: ProcessPlan) -> None:
        first, second, *_ = DEMO_USERS
        ports, settings = plan.ports, shlex.quote(str(plan.folder / SETTINGS))
        table = Table.grid(padding=(0, 2))
        for what, where in (
            ("Open", Text(plan.page_url, "bold underline")),
            ("", Text(f"in two windows: continue as {first} in one, as {second} in the other")),
            ("", Text(f"{ADMINS[0]} has an admin page with charts: menu, Operations")),
            (
                "Terminal",
                Text(
                    f"{_find_command()} chat --as {first} --with {second}{_format_api_option(plan)}"
                ),
            ),
            ("Gateway", Text(plan.gateway_url)),
            ("Redis", Text(f"redis://127.0.0.1:{ports.redis}/0")),
            ("DynamoDB", Text(f"http://127.0.0.1:{ports.dynamodb}")),
            ("S3", Text(f"http://127.0.0.1:{ports.s3}")),
            ("Settings", Text(f". {settings}  (for `{_find_command()} keys` etc.)")),
            ("Data", Text(f"{plan.folder}  (kept across runs; --fresh deletes it)")),
            ("Stop", Text("Ctrl-C")),
        ):
            table.add_row(Text(what, "dim"), where)
        self._console.print(Panel(Group(table), title="chatserver is running", expand=False))


def _find_command() -> str:
    """Return the shell command for this executable from the current directory."""
    if shutil.which("chatserver") is not None:
        return "chatserver"
    path = Path(sys.argv[0]).absolute()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return shlex.quote(str(shown))


def _format_api_option(plan: ProcessPlan) -> str:
    return "" if plan.ports.page == PAGE_PORT else f" --api {plan.page_url.rstrip('/')}"
