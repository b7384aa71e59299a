"""Parsing of the nodes' views of a cluster, and the node that serves a slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from chatserver.errors import CorruptData
from chatserver.hot.redis.cluster_map import ClusterView, SlotClaims, parse_view
from chatserver.hot.redis.keys import SLOTS, get_slot

NODES = """\
aa 10.0.0.1:7000@17000,one.example myself,master - 0 0 7 connected 0-99 200 [93->-bb]
bb 10.0.0.2:7000@17000,two.example master - 0 171 3 connected 100-199 201-16383
cc 10.0.0.3:7000@17000 slave bb 0 171 3 connected
dd 10.0.0.4:7000@17000 master,fail - 171 171 1 disconnected
ee :0@0 master,noaddr - 171 171 0 disconnected
"""


def view_of(text: str, host: str = "seed") -> ClusterView:
    """Parse the reply of a node."""
    return parse_view(text, host)


def line(name: str, port: int, epoch: int, *slots: str, flags: str = "master") -> str:
    """Return the line of CLUSTER NODES for a node."""
    return f"{name} 127.0.0.1:{port}@1{port} {flags} - 0 0 {epoch} connected {' '.join(slots)}"


def test_view_contains_role_health_and_slots_of_each_node() -> None:
    """Masters, replicas and dead nodes are distinguished; a migrating slot belongs to its node."""
    view = view_of(NODES)

    assert view.me == "aa"
    assert [m.id for m in view.members.values() if m.is_master] == ["aa", "bb", "dd", "ee"]
    assert [m.id for m in view.members.values() if m.is_healthy] == ["aa", "bb", "cc"]
    assert view.members["bb"].address == "10.0.0.2:7000"
    assert view.members["ee"].host == "seed"
    assert (view.has_or_imports(93), view.has_or_imports(200), view.has_or_imports(150)) == (
        True,
        True,
        False,
    )


def test_view_by_name_uses_announced_host_names() -> None:
    """Certificates contain names; a node without a name is reached by its address."""
    view = parse_view(NODES, "seed", by_name=True)

    assert [m.host for m in view.members.values()][:3] == ["one.example", "two.example", "10.0.0.3"]


def test_view_of_a_node_that_imports_a_slot_holds_it() -> None:
    """Some keys of the slot may have been moved already."""
    view = view_of(line("aa", 1, 1, "0-9", "[42-<-bb]", flags="myself,master"))

    assert (view.importing, view.has_or_imports(42), view.members["aa"].has_slot(42)) == (
        {42},
        True,
        False,
    )


@pytest.mark.parametrize(
    "text", ["", "aa", NODES.replace("myself,", ""), NODES.replace("0-99", "0-9x")]
)
def test_view_with_invalid_text_raises_corrupt_data(text: str) -> None:
    """An invalid view is an error; nothing is guessed."""
    with pytest.raises(CorruptData, match="CLUSTER NODES"):
        view_of(text)


def test_claims_of_a_promoted_replica_override_the_old_master() -> None:
    """An isolated node still reports itself as master after an election."""
    old = view_of("\n".join([line("aa", 1, 1, "0-99", flags="myself,master")]))
    new = view_of("\n".join([line("aa", 1, 1), line("cc", 3, 4, "0-99", flags="myself,master")]))

    assert SlotClaims([old, new]).find_owner(50) == "cc"
    assert SlotClaims([new, old]).find_owner(50) == "cc"


def test_claims_of_a_new_slot_owner_override_outdated_views() -> None:
    """A slot that has just moved belongs to its new node."""
    source = view_of(
        "\n".join([line("aa", 1, 1, "0-99", flags="myself,master"), line("bb", 2, 2, "100-200")])
    )
    target = view_of(
        "\n".join(
            [line("aa", 1, 1, "0-99"), line("bb", 2, 3, "7", "100-200", flags="myself,master")]
        )
    )

    claims = SlotClaims([source, target])

    assert (claims.find_owner(7), claims.find_owner(8)) == ("bb", "aa")
    assert claims.find_owner(300) is None


@given(st.text(max_size=20))
def test_slot_of_equals_the_slot_of_redis(key: str) -> None:
    """Keys may have complete, empty or unclosed hash tags."""
    assert get_slot(key) == get_slot(key.encode()) == key_slot(key.encode())
    assert 0 <= get_slot(key) < SLOTS


@given(st.text("ab{}", max_size=12))
def test_slot_of_key_with_braces_equals_the_slot_of_redis(key: str) -> None:
    """The tag ends at the first closing brace, and an empty tag is ignored."""
    assert get_slot(key) == key_slot(key.encode())
