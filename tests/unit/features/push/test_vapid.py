"""`chatserver vapid`: what it prints are settings that a worker takes."""

from __future__ import annotations

from click.testing import CliRunner

from chatserver.features.push.cli import vapid
from chatserver.features.push.providers.vapid import check_vapid_pair


def test_vapid_command_prints_a_pair_that_fits() -> None:
    """Copied into the environment, it works; each run makes another one."""
    first, second = (CliRunner().invoke(vapid) for _ in range(2))

    settings = dict(line.split("=", 1) for line in first.stdout.splitlines())
    check_vapid_pair(
        settings["CHAT_NOTIFY_VAPID_PRIVATE"],
        settings["CHAT_NOTIFY_VAPID_PUBLIC"],
        "mailto:ops@chat.example",
    )
    assert first.stdout != second.stdout
