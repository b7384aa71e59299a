"""Load scenarios, and the plan of one worker process. Immutable, JSON-encodable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec


class Mix(msgspec.Struct, frozen=True):
    """The share of each action; the shares add up to 1."""

    send: float = 1.0
    page: float = 0.0
    reconnect: float = 0.0
    connect: float = 0.0


class Shape(msgspec.Struct, frozen=True):
    """The share of messages in each kind of chat, and the group sizes; the shares add up to 1."""

    direct: float = 1.0
    small: float = 0.0
    large: float = 0.0
    small_members: int = 8
    large_members: int = 300


class ChatKind(msgspec.Struct, frozen=True):
    """A kind of chat that every user has. `share`: the share of messages in these chats."""

    name: str
    members: int
    share: float
    is_direct: bool = False


class ScriptFile(msgspec.Struct, frozen=True):
    """A load script. Each process reads `path` and compares the digest of what it read."""

    path: str
    sha256: str
    chats: dict[str, int]  # name → number of members


class Scenario(msgspec.Struct, frozen=True):
    """A pattern of user actions. `rate`: actions per second."""

    name: str
    about: str
    users: int
    rate: float
    shape: Shape = Shape()
    mix: Mix = Mix()
    storm_s: float = 0.0  # All users disconnect and reconnect at this interval; 0: never
    preload: int = 0  # number of messages in each chat before the load starts
    duration_s: float = 30.0
    script: ScriptFile | None = None  # actions of the users; `rate` and `mix` are not used


SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "connect",
            "Users connect at --rate sessions per second and stay connected.",
            users=1000,
            rate=50,
            mix=Mix(send=0, connect=1),
        ),
        Scenario("direct", "Pairs of users exchange direct messages.", users=200, rate=500),
        Scenario(
            "small-groups",
            "Users exchange messages in groups of 8.",
            users=200,
            rate=200,
            shape=Shape(direct=0, small=1),
        ),
        Scenario(
            "large-groups",
            "Users exchange messages in groups of 300, which are large chats.",
            users=300,
            rate=20,
            shape=Shape(direct=0, large=1),
        ),
        Scenario(
            "resume",
            "Pairs exchange messages; every 5 s, all connections are cut and opened again.",
            users=200,
            rate=200,
            storm_s=5,
        ),
        Scenario(
            "history",
            "Users read history: pages of 50 at random positions of chats with 200 messages.",
            users=100,
            rate=100,
            mix=Mix(send=0, page=1),
            preload=200,
        ),
        Scenario(
            "mixed",
            "A mixed day: direct chats, small and large groups, history reads, reconnects.",
            users=300,
            rate=200,
            shape=Shape(direct=0.7, small=0.28, large=0.02),
            mix=Mix(send=0.9, page=0.09, reconnect=0.01),
            preload=20,
        ),
    )
}


class LoadPlan(msgspec.Struct, frozen=True):
    """The work of one worker process. Its users are numbered from `first_user`."""

    run: str
    url: str
    secret: str
    audience: str
    issuer: str | None
    token_s: int
    first_user: int
    users: int
    rate: float
    duration_s: float
    settle_s: float
    body_bytes: int
    seed: int
    connects_per_s: float
    shape: Shape
    mix: Mix
    storm_s: float
    preload: int
    window: int = 0  # 0: open loop; else pending actions in a closed loop, to measure the tool
    script: ScriptFile | None = None  # the script of the users; None: random actions

    def list_chat_kinds(self) -> list[ChatKind]:
        return list_chat_kinds(self.shape, self.script)


def list_chat_kinds(shape: Shape, script: ScriptFile | None) -> list[ChatKind]:
    if script is not None:
        share = 1 / len(script.chats)
        return [
            ChatKind(name, members, share, is_direct=members == 2)
            for name, members in script.chats.items()
        ]
    kinds = [
        ChatKind("direct", 2, shape.direct, is_direct=True),
        ChatKind("small", shape.small_members, shape.small),
        ChatKind("large", shape.large_members, shape.large),
    ]
    return [kind for kind in kinds if kind.share]


def get_process_unit(kinds: Sequence[ChatKind]) -> int:
    """Return the number of users of which a process has a multiple: whole groups, and pairs."""
    unit = max(kind.members for kind in kinds)
    has_pairs = any(kind.is_direct for kind in kinds)
    return 2 * unit if has_pairs and unit % 2 else unit


def split_groups(users: int, members: int) -> list[range]:
    """Split all users into groups of `members`; return the users of each group.

    Remaining users form their own group if they are at least half of `members`; otherwise they join
    the last group.
    """
    whole = max(1, users // members)
    remainder = users - whole * members
    if remainder >= members / 2:
        whole, remainder = whole + 1, 0
    bounds = [min(users, n * members) for n in range(whole)] + [users]
    return [range(a, b) for a, b in pairwise(bounds) if b - a >= 2]


def split_users(users: int, processes: int, unit: int) -> list[tuple[int, int]]:
    """Return `(first user, number of users)` for each process, in multiples of `unit`.

    The last process also gets the remaining users.
    """
    units = max(1, users // unit)
    processes = min(processes, units)
    counts = [(units // processes + (n < units % processes)) * unit for n in range(processes)]
    counts[-1] += users - sum(counts)
    firsts = [sum(counts[:n]) for n in range(processes)]
    return list(zip(firsts, counts, strict=True))
