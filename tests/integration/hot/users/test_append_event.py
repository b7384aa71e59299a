"""append_event.lua: events that are not messages, and new chats in the chat list."""

from __future__ import annotations

import time

from tests.integration.hot.support import ALICE, BOB, CHAT, Scripts


def append(
    scripts: Scripts,
    *users: str,
    body: str = "body",
    listed: bool = False,
    inbox_max: int = 1000,
    mark: str = "",
    level: int = 0,
) -> list[tuple[int, int, str]]:
    """Append an event; return (appended, head, gateways) for each user."""
    reply = scripts.run(
        "append_event",
        {
            "inbox_max": inbox_max,
            "chat_id": CHAT,
            "body": body,
            "is_listed": "1" if listed else "",
            "mark": mark,
            "level": level,
        },
        [{"user": user} for user in users],
    )
    return [
        (reply[at], reply[at + 1], reply[at + 2].decode()) for at in range(0, 3 * len(users), 3)
    ]


def test_append_event_gets_the_next_seq_of_each_inbox(scripts: Scripts) -> None:
    """Events and messages share the seqs of an inbox."""
    scripts.deliver(BOB, 2)

    results = append(scripts, ALICE, BOB, body="näive")

    assert results == [(1, 1, ""), (1, 3, "")]
    assert scripts.inbox(ALICE) == [(1, "!", "näive")]
    assert scripts.inbox(BOB)[-1] == (3, "!", "näive")
    assert scripts.seqs() == {ALICE: 1, BOB: 3}


def test_append_event_of_new_chat_lists_it_once(scripts: Scripts) -> None:
    """A repeated event is not appended."""
    before_us = time.time() * 1e6

    first = append(scripts, ALICE, BOB, listed=True)
    after_us = time.time() * 1e6
    listed = scripts.box(ALICE)
    again = append(scripts, ALICE, BOB, listed=True)

    assert first == [(1, 1, ""), (1, 1, "")]
    assert again == [(0, 1, ""), (0, 1, "")]
    assert scripts.box(ALICE) == listed
    assert before_us - 1e6 < int(listed[f"c:{CHAT}"]) < after_us + 1e6


def test_append_event_of_a_listed_chat_reaches_the_others(scripts: Scripts) -> None:
    """A repeat after a partial failure skips only the users who have the chat."""
    append(scripts, ALICE, listed=True)
    listed = scripts.box(ALICE)

    results = append(scripts, ALICE, BOB, listed=True)

    assert results == [(0, 1, ""), (1, 1, "")]
    assert scripts.box(ALICE) == listed
    assert f"c:{CHAT}" in scripts.box(BOB)


def test_append_event_of_chat_with_messages_does_not_list_it_again(scripts: Scripts) -> None:
    """A fan-out has already listed the chat, and its position is kept."""
    scripts.deliver(ALICE, 4)

    assert append(scripts, ALICE, listed=True) == [(0, 4, "")]
    assert scripts.box(ALICE)[f"t:{CHAT}"] == "4 E1"


def test_append_event_without_listing_is_appended_every_time(scripts: Scripts) -> None:
    """For example, each move of a read mark is an event that lists no chat."""
    append(scripts, ALICE)

    assert append(scripts, ALICE) == [(1, 2, "")]
    assert scripts.box(ALICE) == {}


def test_append_event_returns_the_gateways_of_the_user(scripts: Scripts) -> None:
    """They are returned even if nothing was appended."""
    scripts.place(ALICE, "gw1,gw2")

    assert append(scripts, ALICE, listed=True) == [(1, 1, "gw1,gw2")]
    assert append(scripts, ALICE, listed=True) == [(0, 1, "gw1,gw2")]


def test_append_event_trims_the_inbox_to_its_limit(scripts: Scripts) -> None:
    """The newest events stay."""
    for _ in range(15):
        append(scripts, ALICE, inbox_max=10)

    assert [seq for seq, _, _ in scripts.inbox(ALICE)] == list(range(6, 16))


def test_append_event_of_a_mark_skips_an_older_one_after_a_newer(scripts: Scripts) -> None:
    """Two devices that mark at once on two gateways do not move a mark back for others."""
    mark = f"m:{CHAT}:{BOB}"

    results = [append(scripts, ALICE, mark=mark, level=level) for level in (5, 5, 3, 5, 10)]

    assert [appended for ((appended, _, _),) in results] == [1, 0, 0, 0, 1]
    assert scripts.box(ALICE)[mark] == "10"
    assert [seq for seq, _, _ in scripts.inbox(ALICE)] == [1, 2]
