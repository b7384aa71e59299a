"""Redis keys: unique per entity; keys of one script call share a slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from chatserver.domain.ids import ChatId, GatewayId, UserId
from chatserver.hot.redis.keys import Keys

ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
# Few letters, so that ids are often equal or prefixes of each other.
close_ids = st.text("a-_p0", min_size=1, max_size=4)
partitions = st.integers(1, 1024)

MAKERS: dict[str, Callable[[Keys, list[str]], str]] = {
    "epoch": lambda keys, names: keys.epoch(len(names[0])),
    "backlog": lambda keys, names: keys.backlog(len(names[0])),
    "dead": lambda keys, names: keys.dead(len(names[0])),
    "undelivered": lambda keys, names: keys.undelivered(len(names[0])),
    "idle": lambda keys, names: keys.idle(len(names[0])),
    "checkpoint": lambda keys, names: keys.checkpoint(len(names[0])),
    "where": lambda keys, names: keys.where(len(names[0])),
    "lease": lambda keys, names: keys.lease(len(names[0]), names[1]),
    "chat": lambda keys, names: keys.chat(ChatId(names[0])),
    "watchers": lambda keys, names: keys.watchers(ChatId(names[0])),
    "large": lambda keys, names: keys.large(UserId(names[0])),
    "members": lambda keys, names: keys.members(ChatId(names[0])),
    "log": lambda keys, names: keys.log(ChatId(names[0])),
    "inbox": lambda keys, names: keys.inbox(UserId(names[0])),
    "box": lambda keys, names: keys.box(UserId(names[0])),
    "online": lambda keys, names: keys.online(UserId(names[0])),
    "seen": lambda keys, names: keys.seen(UserId(names[0])),
    "watched": lambda keys, names: keys.watched(UserId(names[0])),
    "limit": lambda keys, names: keys.limit(names[0], names[1]),
    "guesses": lambda keys, names: keys.guesses(UserId(names[0])),
    "login_attempts": lambda keys, names: keys.login_attempts(UserId(names[0]), names[1]),
    "gateways": lambda keys, names: keys.gateways(len(names[0])),
    "mail": lambda keys, names: keys.gateway_stream(GatewayId(names[0])),
    "rpc_calls": lambda keys, _: keys.rpc_calls(),
}
NAMES_USED = {"lease": 2, "limit": 2, "login_attempts": 2, "rpc_calls": 0}
COUNTED = (
    "epoch", "backlog", "dead", "undelivered", "idle", "checkpoint", "where", "lease", "gateways",
)  # fmt: skip


def identity(kind: str, names: list[str]) -> tuple[str, ...]:
    """Return the kind and the ids of the entity that a key belongs to."""
    used = names[: NAMES_USED.get(kind, 1)]
    if kind in COUNTED:
        used[0] = str(len(names[0]))
    return (kind, *used)


three_names = st.lists(close_ids, min_size=3, max_size=3)


@given(partitions, st.sampled_from(sorted(MAKERS)), st.sampled_from(sorted(MAKERS)), st.data())
def test_keys_of_different_entities_differ(
    count: int, one: str, other: str, data: st.DataObject
) -> None:
    """Two keys are equal only if their kinds and ids are equal."""
    keys = Keys(count)
    first, second = data.draw(three_names), data.draw(three_names)

    same_key = MAKERS[one](keys, first) == MAKERS[other](keys, second)

    assert same_key == (identity(one, first) == identity(other, second))


@given(partitions, ids)
def test_keys_of_one_chat_share_a_slot(count: int, chat: str) -> None:
    """One script can access head, members and log of a chat, and keys of its partition."""
    keys, name = Keys(count), ChatId(chat)
    partition = keys.get_partition(name)

    slots = {
        key_slot(key.encode())
        for key in (
            keys.chat(name),
            keys.members(name),
            keys.log(name),
            keys.watchers(name),
            keys.backlog(partition),
            keys.checkpoint(partition),
            keys.undelivered(partition),
            keys.idle(partition),
            keys.where(partition),
            keys.dead(partition),
            keys.epoch(partition),
            keys.lease(partition, "persist"),
        )
    }

    assert len(slots) == 1
    assert 0 <= partition < count


@given(partitions, ids)
def test_keys_of_one_user_share_a_slot(count: int, user: str) -> None:
    """One script can access a user's state, inbox and presence, and the partition's backlog."""
    keys, name = Keys(count), UserId(user)
    partition = keys.get_partition(name)

    slots = {
        key_slot(key.encode())
        for key in (
            keys.box(name),
            keys.inbox(name),
            keys.online(name),
            keys.seen(name),
            keys.watched(name),
            keys.gateways(partition),
            keys.where(partition),
            keys.backlog(partition),
        )
    }

    assert len(slots) == 1


@given(partitions, ids)
def test_keys_of_inboxes_have_the_user_at_a_fixed_offset(count: int, user: str) -> None:
    """commit_messages.lua cuts the user id out of the inbox key to access `where`."""
    keys, name = Keys(count), UserId(user)

    prefix_length = len(keys.where(keys.get_partition(name))) + 1

    assert keys.inbox(name)[prefix_length:] == user


@given(ids)
def test_partition_of_a_single_partition_is_the_first(name: str) -> None:
    """A single partition holds everything."""
    assert Keys(1).get_partition(ChatId(name)) == 0


@pytest.mark.parametrize("count", [2, 64, 1024])
def test_partitions_all_have_users(count: int) -> None:
    """Ids are spread over all partitions, so that no shard stays idle."""
    keys = Keys(count)

    used = {keys.get_partition(UserId(f"user-{n}")) for n in range(count * 20)}

    assert used == set(range(count))


def test_partitions_of_a_cluster_spread_over_its_slots() -> None:
    """The hash tags of 64 partitions are spread over all slots of the cluster."""
    slots = sorted(key_slot(Keys(64).backlog(n).encode()) for n in range(64))

    assert len(set(slots)) == 64
    assert slots[0] < 16_384 // 8
    assert slots[-1] > 16_384 * 7 // 8
