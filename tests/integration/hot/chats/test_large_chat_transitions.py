"""notify_transition.lua and subscribe_large_chats.lua: inboxes announce a large chat."""

from __future__ import annotations

from chatserver.domain.ids import GatewayId, Seq, UserId
from chatserver.domain.inboxes import LargePlace
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.redis.client import HotClient
from tests.integration.hot.support import ALICE, BOB, CHAT, EPOCH, Scripts

pytest_plugins = ["tests.integration.hot.fixtures"]


def turn(
    scripts: Scripts,
    *users: UserId,
    version: int,
    since: int,
    is_large: bool = True,
    epoch: str = EPOCH,
) -> list[int | bytes]:
    """Notify users of a transition; return the script's reply."""
    keys = scripts.keys
    reply: list[int | bytes] = scripts.run(
        "notify_transition",
        scripts.heads(),
        {
            "inbox_max": 3,
            "chat_id": CHAT,
            "version": version,
            "is_large": "1" if is_large else "",
            "epoch": epoch,
        },
        [
            {
                "box": keys.box(user),
                "inbox": keys.inbox(user),
                "large": keys.large(user),
                "user": user,
                "since": since,
                "field": "!",
                "value": f"v{version}",
            }
            for user in users
        ],
    )
    return reply


def listen(scripts: Scripts, user: str = "", ttl_ms: int = 60_000) -> list[int]:
    """Have entries sent to a gateway; return where the chat stands."""
    keys = scripts.keys
    reply: list[int] = scripts.run(
        "subscribe_large_chats",
        {},
        {"epoch": EPOCH, "gateway": "gw1", "ttl_ms": ttl_ms},
        [
            {
                "chat": keys.chat(CHAT),
                "watchers": keys.watchers(CHAT),
                "members": keys.members(CHAT),
                "user": user,
            }
        ],
    )
    return reply


def test_turn_stands_in_the_inbox_and_among_the_large_chats(scripts: Scripts) -> None:
    """Both are written atomically: a reader of one finds the other."""
    scripts.place(BOB, "gw7")

    assert turn(scripts, ALICE, BOB, version=2, since=5) == [1, 1, b"", 1, 1, b"gw7"]

    assert scripts.inbox(ALICE) == [(1, "!", "v2")]
    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "1:5"}
    assert int(scripts.box(ALICE)[f"c:{CHAT}"]) > 0


def test_turn_of_a_later_epoch_is_told_though_an_earlier_one_told_as_much(
    scripts: Scripts,
) -> None:
    """After a loss of Redis the chat becomes large at another seq; the old one is void."""
    turn(scripts, ALICE, version=4, since=9)
    turn(scripts, ALICE, version=4, since=5, epoch="E2")
    assert scripts.inbox(ALICE) == [(1, "!", "v4"), (2, "!", "v4")]
    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "2:5"}

    assert turn(scripts, ALICE, version=4, since=5, epoch="E2")[0] == 0
    assert turn(scripts, ALICE, version=6, since=9)[0] == 0


def test_turn_again_or_overtaken_does_nothing(scripts: Scripts) -> None:
    """Two processes may notify the same transition, one of them late."""
    turn(scripts, ALICE, version=4, since=5)

    assert turn(scripts, ALICE, version=4, since=5)[0] == 0
    assert turn(scripts, ALICE, version=3, since=2, is_large=False)[0] == 0
    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "1:5"}


def test_turn_back_keeps_since_when_it_was(scripts: Scripts) -> None:
    """A late device needs the entries between both transitions."""
    turn(scripts, ALICE, version=2, since=5)

    turn(scripts, ALICE, version=3, since=9, is_large=False)

    assert scripts.hash(scripts.keys.large(ALICE)) == {CHAT: "2:5:9"}
    assert scripts.inbox(ALICE) == [(1, "!", "v2"), (2, "!", "v3")]


def test_times_before_are_kept_too_up_to_a_bound(scripts: Scripts) -> None:
    """A device that missed several transitions finds its own; beyond the limit it starts anew."""
    for version in range(1, 9, 2):
        turn(scripts, ALICE, version=version, since=10 * version)
        turn(scripts, ALICE, version=version + 1, since=10 * version + 5, is_large=False)

    times = scripts.hash(scripts.keys.large(ALICE))[CHAT].split(";")
    assert times == ["8:70:75", "6:50:55", "4:30:35", "2:10:15"]

    for version in range(9, 40):
        turn(scripts, ALICE, version=version, since=version, is_large=version % 2 == 0)

    times = scripts.hash(scripts.keys.large(ALICE))[CHAT].split(";")
    assert (len(times), times[0]) == (8, "39:38:39")


async def test_what_ended_is_found_by_where_it_was_told(scripts: Scripts, hot: HotClient) -> None:
    """Each time by its own place; what goes on has no end."""
    turn(scripts, ALICE, version=1, since=10)
    turn(scripts, ALICE, version=2, since=15, is_large=False)
    turn(scripts, ALICE, version=3, since=20)
    watchers = LargeChatSubscriptions(hot, GatewayId("gw1"), 60)

    assert await watchers.find_since(ALICE, CHAT, Seq(2)) == 10
    assert await watchers.find_since(ALICE, CHAT, Seq(3)) is None
    assert await watchers.find_since(BOB, CHAT, Seq(2)) is None
    assert (await watchers.list_large(ALICE))[CHAT] == LargePlace(Seq(3), Seq(20))


def test_turn_keeps_the_inbox_within_its_bound(scripts: Scripts) -> None:
    """As every event does."""
    for version in range(1, 6):
        turn(scripts, ALICE, version=version, since=version)

    assert [seq for seq, *_ in scripts.inbox(ALICE)] == [3, 4, 5]


def test_listen_tells_where_the_chat_and_its_member_stand(scripts: Scripts) -> None:
    """Of one moment: a removal of the member lies above that head."""
    assert listen(scripts, ALICE) == [0, 0, 0, 0]
    scripts.open_chat(ALICE, seq=7, large=3)
    scripts.redis.hset(scripts.keys.members(CHAT), "carol", "member:4:0m")

    assert listen(scripts) == [7, 1, 3, 0]
    assert listen(scripts, ALICE) == [7, 1, 3, 1]
    assert listen(scripts, "carol") == [7, 1, 3, 4]
    assert listen(scripts, BOB) == [7, 1, 3, 0]
    assert scripts.redis.zrange(scripts.keys.watchers(CHAT), 0, -1) == [b"gw1"]


def test_listen_no_more_takes_the_gateway_off(scripts: Scripts) -> None:
    """Nothing is sent to it from then on."""
    scripts.open_chat(ALICE)
    listen(scripts)

    listen(scripts, ttl_ms=0)

    assert scripts.redis.zrange(scripts.keys.watchers(CHAT), 0, -1) == []
