"""`chatserver vapid` prints valid settings of a worker."""

from __future__ import annotations

from click.testing import CliRunner

from chatserver.features.push.cli import vapid
from chatserver.features.push.providers.vapid import check_vapid_pair


def test_vapid_command_prints_a_new_matching_key_pair() -> None:
    """The output can be copied into the environment."""
    first, second = (CliRunner().invoke(vapid) for _ in range(2))

    settings = dict(line.split("=", 1) for line in first.stdout.splitlines())
    check_vapid_pair(
        settings["CHAT_NOTIFY_VAPID_PRIVATE"],
        settings["CHAT_NOTIFY_VAPID_PUBLIC"],
        "mailto:ops@chat.example",
    )
    assert first.stdout != second.stdout
