"""Sends refused before their commit: no later send overtakes them (guarantee P3)."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatserver.domain.ids import Epoch, Seq, UserId
from chatserver.errors import Overloaded, RateLimited
from chatserver.gateway.session.send_order import REFUSED_MAX, RESEND_S, SendOrder
from chatserver.protocol import frames
from tests.unit.gateway.session_world import FakeConnection, FakeContext, Unlimited, welcome

pytestmark = pytest.mark.constants(
    {"chatserver.gateway.session.session_limits.SENDS_IN_FLIGHT_MAX": 4}
)

IN_FLIGHT_MAX = 4


class Allowance:
    """A rate limit for sends whose tokens the test sets."""

    key = ("sends", "alice")
    is_removed = False

    def __init__(self) -> None:
        self.tokens = 1_000
        self.is_wait_unknown = False
        self.waiting: list[Callable[[], None]] = []

    def spend(self, cost: int = 1) -> bool:
        if self.tokens < cost:
            return False
        self.tokens -= cost
        return True

    def wait_ms(self, cost: int = 1) -> int:
        return 0 if self.is_wait_unknown else 50

    def make_refusal(self, what: str, wait_ms: int) -> RateLimited:
        return RateLimited(f"too {what}: slow down", retry_after_ms=wait_ms)

    def request(self, on_reply: Callable[[], None], cost: int = 1) -> None:
        self.waiting.append(on_reply)


class FakeGateway(FakeContext):
    """A gateway with one session; the test completes its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[str] = []
        self.in_flight: collections.deque[frames.Send] = collections.deque()
        self.is_overloaded = False
        self.tasks = self
        self.whole_epoch = Epoch("E1")

    def spawn(self, work: Coroutine[Any, Any, None], name: str, *_: object) -> None:
        raise AssertionError(f"no task is needed: {name}")

    def submit(
        self, sender: UserId, frame: frames.Send, on_response: object, files: object
    ) -> None:
        if self.is_overloaded:
            raise Overloaded("too many messages are waiting")
        self.committed.append(frame.ref)
        self.in_flight.append(frame)


class World(FakeConnection):
    """A live session, and a client that pipelines and repeats refused sends in order."""

    def __init__(self) -> None:
        super().__init__()
        self.gateway, self.allowance = FakeGateway(), Allowance()
        self.responses: collections.deque[dict[str, Any]] = collections.deque()
        self.handler = welcome(self.gateway, self, Epoch("E1"), 0)
        self.session = self.handler.session
        self.handler._sends_allowed = cast(Any, self.allowance)
        self.handler._memory_allowed = cast(Any, Unlimited())
        self.session.activity = cast(Any, self)
        self.is_fresh = True
        self.session.go_live(Seq(0))
        self.unanswered: dict[str, bool] = {}  # ref → whether it was refused
        self.written = 0

    def send_text(self, payload: bytes) -> None:
        self.responses.append(msgspec.json.decode(payload))

    # the client's actions

    def write(self, ref: str) -> None:
        self.unanswered[ref] = False
        frame = {"type": "send", "id": int(ref), "chat": "c", "ref": ref, "body": "x"}
        self.handler.handle_message(msgspec.json.encode(frame))

    def write_new(self) -> None:
        self.write(str(self.written))
        self.written += 1

    def read(self, count: int) -> None:
        """Read `count` responses, and mark the refused sends."""
        for _ in range(min(count, len(self.responses))):
            response = self.responses.popleft()
            ref = str(response["id"])
            if response["type"] == "error":
                assert response["temporary"], response
                assert response["retry_after_ms"] > 0
                self.unanswered[ref] = True
            else:
                del self.unanswered[ref]

    def repeat(self) -> None:
        """Repeat the refused sends in order."""
        for ref in sorted(self.unanswered, key=int):
            if self.unanswered[ref]:
                self.write(ref)

    # the server's actions

    def ack(self, count: int) -> None:
        for _ in range(min(count, len(self.gateway.in_flight))):
            frame = self.gateway.in_flight.popleft()
            self.session.state.sends_unacked -= 1
            self.send_text(msgspec.json.encode({"type": "ack", "id": frame.id}))

    def refill(self) -> None:
        self.allowance.tokens = 1_000
        waiting, self.allowance.waiting = self.allowance.waiting, []
        for on_response in waiting:
            on_response()

    def hold(self) -> None:
        self.session.state.is_held = True

    def release(self) -> None:
        if not self.allowance.waiting:
            self.handler._process_held()

    def refuse_late(self) -> None:
        self.handler._refuse_late()

    def run_step(self, name: str, count: int) -> None:
        match name:
            case "burst":
                for _ in range(count):
                    self.write_new()
            case "read":
                self.read(count)
            case "repeat":
                self.repeat()
            case "ack":
                self.ack(count)
            case "drain":
                self.allowance.tokens, self.allowance.is_wait_unknown = count % 3, count % 2 == 0
            case "refill":
                self.refill()
            case "hold":
                self.hold()
            case "release":
                self.release()
            case "late":
                self.refuse_late()
            case "overload":
                self.gateway.is_overloaded = count % 2 == 0

    def finish(self) -> None:
        """Complete all sends; the client repeats refused ones until no send is unanswered."""
        self.gateway.is_overloaded = False
        for _ in range(500):
            self.refill()
            self.release()
            self.ack(100)
            self.read(1_000)
            if not self.unanswered:
                return
            self.repeat()
        raise AssertionError(f"sends without an ack: {self.unanswered}")


NAMES = ["burst", "read", "repeat", "ack", "drain", "refill", "hold", "release", "late", "overload"]
steps = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 12)), max_size=30)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_sends_of_any_burst_are_committed_in_the_order_sent(
    script: list[tuple[str, int]],
) -> None:
    """With any refusals and delays, the committed sends are the sent ones, in order."""

    async def main() -> None:
        world = World()
        for name, count in script:
            world.run_step(name, count)
            assert world.gateway.committed == [str(n) for n in range(len(world.gateway.committed))]
        world.finish()
        assert world.gateway.committed == [str(n) for n in range(world.written)]
        world.session.end()
        if world.handler._held_timer is not None:
            world.handler._held_timer.cancel()

    asyncio.run(main())


def errors_of(world: World) -> list[dict[str, Any]]:
    return [response for response in world.responses if response["type"] == "error"]


async def test_send_after_a_refused_one_is_refused_until_its_retry() -> None:
    """The rest of a burst is refused even if the limit would allow it again."""
    world = World()
    for _ in range(IN_FLIGHT_MAX + 1):
        world.write_new()
    world.ack(IN_FLIGHT_MAX)

    world.write_new()
    assert [error["code"] for error in errors_of(world)] == ["rate_limited"] * 2
    assert "retry 4 first" in errors_of(world)[1]["message"]
    world.write("4")
    world.write("5")

    assert world.gateway.committed == ["0", "1", "2", "3", "4", "5"]


def test_send_after_a_refused_one_without_retry_is_allowed_after_a_timeout() -> None:
    """A client that drops a refused send is not blocked in the chat forever."""
    order = SendOrder()
    order.refuse("c", "4", None, 100.1)

    with pytest.raises(RateLimited) as caught:
        order.check("c", "5", None, 100.0)
    order.check("d", "6", None, 100.0)
    order.check("c", "7", None, 100.1 + RESEND_S)

    assert caught.value.retry_after_ms == 100
    assert order.refused == {}


def test_refused_sends_of_a_session_are_bounded() -> None:
    """A hostile client cannot fill the memory; sends above the limit are refused too."""
    order = SendOrder()
    for n in range(REFUSED_MAX + 10):
        order.refuse(f"c{n % 7}", f"r{n}", None, 100.0)

    with pytest.raises(RateLimited):
        order.check("c1", "more", None, 100.0)

    assert sum(len(found.numbers) for found in order.refused.values()) == REFUSED_MAX
