"""Large-chat transitions in inboxes, and the gateways subscribed to large chats."""

from __future__ import annotations

from chatserver.domain.ids import GatewayId, Seq, UserId
from chatserver.domain.inboxes import LargePeriod
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.redis.client import HotClient
from tests.integration.hot.support import ALICE, BOB, CHAT, EPOCH, Scripts


def notify(
    scripts: Scripts,
    *users: UserId,
    version: int,
    since: int,
    is_large: bool = True,
    epoch: str = EPOCH,
) -> list[int | bytes]:
    """Notify users of a transition; return the script's reply."""
    reply: list[int | bytes] = scripts.run(
        "notify_large_chat_transition",
        {
            "inbox_max": 3,
            "chat_id": CHAT,
            "version": version,
            "is_large": "1" if is_large else "",
            "epoch": epoch,
        },
        [
            {
                "user": user,
                "since": since,
                "field": "!",
                "value": f"v{version}",
            }
            for user in users
        ],
    )
    return reply


def subscribe(scripts: Scripts, user: str = "", ttl_ms: int = 60_000) -> list[int]:
    """Subscribe a gateway to the chat; return the chat's head and the member's first seq."""
    args = {"epoch": EPOCH, "gateway": "gw1", "ttl_ms": ttl_ms}
    reply: list[int] = scripts.run("subscribe_large_chats", args, [{"user": user}])
    return reply


def test_transition_is_in_the_inbox_and_the_list_of_large_chats(scripts: Scripts) -> None:
    """Both are written atomically."""
    scripts.place(BOB, "gw7")

    assert notify(scripts, ALICE, BOB, version=2, since=5) == [1, 1, b"", 1, 1, b"gw7"]

    assert scripts.inbox(ALICE) == [(1, "!", "v2")]
    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "1:5"}
    assert int(scripts.box(ALICE)[f"c:{CHAT}"]) > 0


def test_transition_of_a_later_epoch_is_notified_again(
    scripts: Scripts,
) -> None:
    """After a loss of Redis, the chat becomes large at another seq, and the old one is invalid."""
    notify(scripts, ALICE, version=4, since=9)
    notify(scripts, ALICE, version=4, since=5, epoch="E2")
    assert scripts.inbox(ALICE) == [(1, "!", "v4"), (2, "!", "v4")]
    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "2:5"}

    assert notify(scripts, ALICE, version=4, since=5, epoch="E2")[0] == 0
    assert notify(scripts, ALICE, version=6, since=9)[0] == 0


def test_repeated_or_outdated_transition_changes_nothing(scripts: Scripts) -> None:
    """Two processes may notify the same transition, one of them late."""
    notify(scripts, ALICE, version=4, since=5)

    assert notify(scripts, ALICE, version=4, since=5)[0] == 0
    assert notify(scripts, ALICE, version=3, since=2, is_large=False)[0] == 0
    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "1:5"}


def test_transition_to_small_keeps_the_seqs_of_both(scripts: Scripts) -> None:
    """A device that was offline needs the entries between both transitions."""
    notify(scripts, ALICE, version=2, since=5)

    notify(scripts, ALICE, version=3, since=9, is_large=False)

    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "2:5:9"}
    assert scripts.inbox(ALICE) == [(1, "!", "v2"), (2, "!", "v3")]


def test_earlier_transitions_are_kept_up_to_a_limit(scripts: Scripts) -> None:
    """A device that missed several transitions finds its own. Beyond the limit it is reset."""
    for version in range(1, 9, 2):
        notify(scripts, ALICE, version=version, since=10 * version)
        notify(scripts, ALICE, version=version + 1, since=10 * version + 5, is_large=False)

    ranges = scripts.hash(scripts.keys.large(ALICE))[CHAT].split(";")
    assert ranges == ["8:70:75", "6:50:55", "4:30:35", "2:10:15"]

    for version in range(9, 40):
        notify(scripts, ALICE, version=version, since=version, is_large=version % 2 == 0)

    ranges = scripts.hash(scripts.keys.large(ALICE))[CHAT].split(";")
    assert (len(ranges), ranges[0]) == (8, "39:38:39")


async def test_ended_range_is_found_by_its_inbox_seq(scripts: Scripts, hot: HotClient) -> None:
    """Each range has its own inbox seq; the current range has no end."""
    notify(scripts, ALICE, version=1, since=10)
    notify(scripts, ALICE, version=2, since=15, is_large=False)
    notify(scripts, ALICE, version=3, since=20)
    subscriptions = LargeChatSubscriptions(hot, GatewayId("gw1"), 60)

    assert await subscriptions.find_since(ALICE, CHAT, Seq(2)) == 10
    assert await subscriptions.find_since(ALICE, CHAT, Seq(3)) is None
    assert await subscriptions.find_since(BOB, CHAT, Seq(2)) is None
    assert (await subscriptions.list_large(ALICE))[CHAT] == LargePeriod(Seq(3), Seq(20))


def test_transition_trims_the_inbox_to_its_limit(scripts: Scripts) -> None:
    """The newest events stay."""
    for version in range(1, 6):
        notify(scripts, ALICE, version=version, since=version)

    assert [seq for seq, *_ in scripts.inbox(ALICE)] == [3, 4, 5]


def test_subscribe_returns_the_head_of_the_chat_and_the_member_s_join(scripts: Scripts) -> None:
    """Both are read atomically. A later removal of the member has a seq above that head."""
    assert subscribe(scripts, ALICE) == [0, 0, 0, 0]
    scripts.open_chat(ALICE, seq=7, large=3)
    scripts.redis.hset(scripts.keys.members(CHAT), "carol", "member:4:0m")

    assert subscribe(scripts) == [7, 1, 3, 0]
    assert subscribe(scripts, ALICE) == [7, 1, 3, 1]
    assert subscribe(scripts, "carol") == [7, 1, 3, 4]
    assert subscribe(scripts, BOB) == [7, 1, 3, 0]
    assert scripts.redis.zrange(scripts.keys.watchers(CHAT), 0, -1) == [b"gw1"]


def test_subscribe_with_zero_ttl_removes_the_gateway(scripts: Scripts) -> None:
    """Nothing more is sent to the gateway."""
    scripts.open_chat(ALICE)
    subscribe(scripts)

    subscribe(scripts, ttl_ms=0)

    assert scripts.redis.zrange(scripts.keys.watchers(CHAT), 0, -1) == []
