"""The console output of `chatserver dev`: labeled lines, and no control characters."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from chatserver.dev.console import Screen
from chatserver.dev.ports import Ports
from chatserver.dev.process_plan import ProcessPlan


def printed(print_to: object) -> str:
    stream = io.StringIO()
    screen = Screen(Console(file=stream, width=200, highlight=False))
    assert callable(print_to)
    print_to(screen)
    return stream.getvalue()


def test_line_begins_with_the_name_of_its_process() -> None:
    """A long line is not wrapped."""
    text = printed(lambda screen: screen.print_line("gateway", "12:00:00 info    " + "x" * 500))

    assert text.startswith("gateway  │ 12:00:00 info")
    assert text.count("\n") == 1


def test_line_with_markup_and_control_characters_is_shown_as_text() -> None:
    """Process output cannot change the style or move the cursor."""
    text = printed(lambda screen: screen.print_line("api", "[red]x[/red] \x1b[2J \x9b \u202e"))

    assert "[red]x[/red]" in text
    assert not any(char in text for char in "\x1b\x9b\u202e")


def test_failure_shows_the_process_and_its_last_lines() -> None:
    """The exit code is shown too."""
    text = printed(lambda screen: screen.report_failure("redis", "ended with 1", ["one", "two"]))

    assert "redis ended with 1" in text
    assert "one" in text and "two" in text


def test_welcome_shows_addresses_and_how_to_stop() -> None:
    """A newcomer needs no other information to start."""
    plan = ProcessPlan(Path("/data"), Ports(1080, 1081, 1082, 1083, 1084), secret="s")

    text = printed(lambda screen: screen.print_welcome(plan))

    for part in (
        "http://127.0.0.1:1080/",
        " chat --as alice --with bob --api http://127.0.0.1:1080",
        "redis://127.0.0.1:1082/0",
        "/data",
        "Ctrl-C",
    ):
        assert part in text


def test_welcome_quotes_a_folder_with_a_space_for_the_shell() -> None:
    """The line can be pasted."""
    plan = ProcessPlan(Path("/my data"), Ports(1080, 1081, 1082, 1083, 1084), secret="s")

    text = printed(lambda screen: screen.print_welcome(plan))

    assert ". '/my data/settings.env'" in text


def test_failure_of_a_server_says_what_happened_to_the_data() -> None:
    """The advice follows the log lines."""
    text = printed(
        lambda screen: screen.report_failure("redis", "ended with -9", ["one"], "the data is safe")
    )

    assert text.index("one") < text.index("the data is safe")
