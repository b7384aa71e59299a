"""Sessions by user, and the end of a user's last session."""

from __future__ import annotations

from typing import Any, cast

from chatserver.domain.ids import DeviceId, UserId
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.session.session import Session

ALICE, BOB = UserId("alice"), UserId("bob")


class Device:
    """The part of a session that the registry uses."""

    def __init__(self, device: str) -> None:
        self.device = device


def session(device: str = "d") -> Session:
    """Return a session on a device."""
    return cast(Session, Device(device))


def test_registry_remove_returns_true_for_the_last_session_only() -> None:
    """Presence is withdrawn with the last session, not before."""
    registry = LocalSessions()
    first, second = session(), session()
    registry.add(ALICE, first)
    registry.add(ALICE, second)

    assert not registry.remove(ALICE, first)
    assert registry.remove(ALICE, second)
    assert registry.list_users() == []
    assert registry.by_user == {}
    assert registry.count == 0


def test_registry_remove_twice_or_unknown_changes_nothing() -> None:
    """A connection that ends while it is being closed is removed once."""
    registry = LocalSessions()
    first_session = session()
    registry.add(ALICE, first_session)
    registry.remove(ALICE, first_session)

    assert not registry.remove(ALICE, first_session)
    assert not registry.remove(BOB, session())
    assert registry.count == 0


def test_registry_lists_the_sessions_of_a_user_oldest_first() -> None:
    """The oldest session is closed at the limit."""
    registry = LocalSessions()
    sessions = [session(f"d{n}") for n in range(3)]
    for each in sessions:
        registry.add(ALICE, each)

    assert registry.list_sessions(ALICE) == sessions
    assert registry.list_sessions(BOB) == []


def test_registry_finds_the_session_of_a_device() -> None:
    """A device that reconnects replaces its earlier session."""
    registry = LocalSessions()
    phone, laptop = session("phone"), session("laptop")
    registry.add(ALICE, phone)
    registry.add(ALICE, laptop)

    assert registry.find_device(ALICE, DeviceId("laptop")) is laptop
    assert registry.find_device(ALICE, DeviceId("watch")) is None
    assert registry.find_device(BOB, DeviceId("phone")) is None


def test_registry_iterates_while_sessions_leave() -> None:
    """Draining iterates over the sessions while they remove themselves."""
    registry = LocalSessions()
    for user in (ALICE, BOB):
        for n in range(3):
            registry.add(user, session(f"d{n}"))

    seen: list[Any] = []
    for each in registry:
        seen.append(each)
        for user in (ALICE, BOB):
            registry.remove(user, each)

    assert len(seen) == 6
    assert registry.count == 0
