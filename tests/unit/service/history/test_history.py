"""History: pages of a chat in two tiers, without gaps between them (guarantee P6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Epoch
from chatserver.domain.membership_periods import Period
from chatserver.domain.messages import LogEntry
from chatserver.domain.page_limits import BYTES_MAX, PageBounds
from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.protocol import codec, frames
from chatserver.service.history.history_pages import HistoryPages
from chatserver.service.history.reader_views import View
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, KnownAudiences, audience_of
from tests.unit.service.history.split_chats import (
    FakeMembership,
    Tiers,
    read,
    read_as,
    spans,
    tiers,
    ts_of,
    with_hint,
)


@given(tiers(), st.none() | st.integers(0, 70), st.integers(1, 30), st.booleans())
def test_history_page_before_ends_just_below_the_position(
    tier: Tiers, before: int | None, limit: int, is_hinted: bool
) -> None:
    """The page is contiguous, and as long as requested if there are enough messages."""
    top = tier.top if before is None else min(tier.top, before - 1)
    hint = None if before is None or before > tier.top else with_hint(before, is_hinted)

    page, seqs = read(tier, before=before, limit=limit, ts=hint)

    assert seqs == list(range(top - len(seqs) + 1, top + 1))
    full = min(limit, max(0, top))
    assert len(seqs) == full if tier.warm_run >= limit else len(seqs) > 0 or full == 0
    assert page.has_more == (bool(seqs) and seqs[0] > 1)


@given(tiers(), st.integers(0, 70), st.integers(1, 30), st.booleans())
def test_history_page_after_begins_just_above_the_position(
    tier: Tiers, after: int, limit: int, is_hinted: bool
) -> None:
    """The page is contiguous, and `has_more` is correct."""
    page, seqs = read(tier, after=after, limit=limit, ts=with_hint(after, is_hinted))

    assert seqs == list(range(after + 1, after + 1 + len(seqs)))
    assert len(seqs) <= limit
    assert bool(seqs) == (after < tier.top)
    assert page.has_more == (bool(seqs) and seqs[-1] < tier.top)


@given(tiers(), st.none() | st.integers(0, 70), st.integers(1, 30), st.booleans())
def test_history_page_has_no_messages_that_redis_lost(
    tier: Tiers, position: int | None, limit: int, is_upwards: bool
) -> None:
    """If Redis assigned the seqs of lost messages again, the page has the new messages."""
    tier.has_lost = True
    window = {"after": position or 0} if is_upwards else {"before": position}

    page, _ = read(tier, limit=limit, **window)

    assert "lost" not in {codec.decode_message(message).body for message in page.messages}


@given(st.integers(1, 70), st.integers(1, 30), st.integers(1, 40))
def test_history_page_before_stays_below_it_while_the_chat_grows(
    before: int, limit: int, growth: int
) -> None:
    """A message committed between two reads does not move the page past its end."""
    page, seqs = read(Tiers(20, range(1, 21), 0, grows_by=growth), before=before, limit=limit)

    top = min(20, before - 1)
    assert seqs == list(range(max(1, top - limit + 1), top + 1))
    assert page.has_more == (bool(seqs) and seqs[0] > 1)


@given(tiers(), st.none() | st.integers(0, 70), st.integers(1, 30))
def test_history_page_names_the_coldest_tier_that_was_read(
    tier: Tiers, before: int | None, limit: int
) -> None:
    """A page is `hot` only if the warm tier was not read."""
    page, _ = read(tier, before=before, limit=limit)

    assert page.tier == ("warm" if tier.warm_calls else "hot")
    assert tier.warm_calls <= 1


@given(tiers(), st.integers(1, 61), st.integers(0, 60), st.integers(1, 20), st.booleans())
def test_history_walk_contains_exactly_the_membership_of_the_reader(
    tier: Tiers, first: int, head: int, limit: int, is_upwards: bool
) -> None:
    """A walk in either direction returns the seqs from the join to the last one as a member."""
    head = min(head, tier.top)
    membership, seen = FakeMembership(first, head), list[int]()
    page, seqs = read_as(membership, tier, limit=limit, **({"after": 0} if is_upwards else {}))
    seen = seqs
    while page.has_more and seqs:
        window = {"after": seen[-1]} if is_upwards else {"before": seen[0]}
        page, seqs = read_as(membership, tier, limit=limit, **window)
        seen = seen + seqs if is_upwards else seqs + seen

    assert seen == list(range(first, head + 1))


@given(tiers(), st.integers(1, 20), st.booleans(), st.data())
def test_history_walk_after_rejoining_contains_all_periods_and_no_gap(
    tier: Tiers, limit: int, is_upwards: bool, data: st.DataObject
) -> None:
    """Each page is within one period, and the walk reaches the first and last message."""
    membership, readable = data.draw(spans(tier.top))
    page, seen = read_as(membership, tier, limit=limit, **({"after": 0} if is_upwards else {}))
    while page.has_more:
        window = {"after": seen[-1]} if is_upwards else {"before": seen[0]}
        page, seqs = read_as(membership, tier, limit=limit, **window)
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        seen = seen + seqs if is_upwards else seqs + seen

    assert seen == readable


@given(tiers(), st.integers(0, 70), st.integers(1, 20), st.booleans(), st.data())
def test_history_page_from_any_position_contains_no_gap(
    tier: Tiers, position: int, limit: int, is_upwards: bool, data: st.DataObject
) -> None:
    """A page that begins in a gap continues with the next period and is not empty."""
    membership, readable = data.draw(spans(tier.top))
    _, seqs = read_as(
        membership, tier, limit=limit, **{"after" if is_upwards else "before": position}
    )

    rest = [seq for seq in readable if (seq > position if is_upwards else seq < position)]
    assert set(seqs) <= set(rest)
    assert seqs[: 1 if is_upwards else None][-1:] == (rest[:1] if is_upwards else rest[-1:])


def test_history_page_above_the_join_reads_no_periods() -> None:
    """Only a page that reaches the join reads the earlier periods."""
    membership, tier = FakeMembership(11, 60, (Period(3, 5),)), Tiers(60, range(1, 61), 0)

    above, _ = read_as(membership, tier, limit=20)
    newer, _ = read_as(membership, tier, limit=20, after=30)
    before = membership.lookups
    reached, seqs = read_as(membership, tier, limit=50)

    assert (before, above.has_more, newer.has_more) == (0, True, True)
    assert (membership.lookups, reached.has_more, seqs) == (1, True, list(range(11, 61)))


def test_history_page_without_available_periods_is_returned() -> None:
    """`has_more` is true, and a request for the next page is refused temporarily."""
    membership, tier = FakeMembership(11, 60, (Period(3, 5),)), Tiers(60, range(1, 61), 0)
    membership.error = Unavailable("directory")

    page, seqs = read_as(membership, tier, limit=50)

    assert (seqs, page.has_more) == (list(range(11, 61)), True)
    with pytest.raises(Unavailable):
        read_as(membership, tier, before=11)


@pytest.mark.parametrize("field", ["before", "after"])
def test_history_page_is_refused_if_redis_loses_the_chat_while_it_is_read(field: str) -> None:
    """Lost entries and new entries with the same seqs are never in one page."""
    reopened = Tiers(20, range(1, 21), 0, next_epoch=Epoch("two"))
    closed = Tiers(20, range(1, 21), 0, is_open=False)

    for tier in (reopened, closed):
        with pytest.raises(Unavailable, match="lost the chat"):
            read(tier, **{field: 10})


@given(st.integers(1, 20), st.integers(1, 30))
def test_history_of_a_member_who_leaves_during_the_read_ends_at_the_leave(
    head: int, growth: int
) -> None:
    """Messages sent after the membership check are on no page of the user (P7)."""
    tier = Tiers(head, range(1, head + 1), 0, grows_by=growth)

    assert read_as(FakeMembership(1, head), tier, limit=100)[1] == list(range(1, head + 1))
    assert read_as(FakeMembership(1, head), tier, limit=100, after=0)[1] == list(range(1, head + 1))


@given(tiers(), st.integers(1, 20))
def test_history_walk_back_contains_each_message_once(tier: Tiers, limit: int) -> None:
    """Pages toward older messages contain every message and end when `has_more` is false."""
    page, seqs = read(tier, limit=limit)
    seen = seqs
    while page.has_more:
        page, seqs = read(tier, before=seen[0], limit=limit, ts=ts_of(seen[0]))
        assert seqs
        seen = seqs + seen

    assert seen == list(range(1, tier.top + 1))


@given(tiers(), st.integers(1, 20))
def test_history_walk_forward_contains_each_message_once(tier: Tiers, limit: int) -> None:
    """Pages toward newer messages contain every message."""
    page, seen = read(tier, after=0, limit=limit)
    while page.has_more:
        page, seqs = read(tier, after=seen[-1], limit=limit)
        assert seqs
        seen = seen + seqs

    assert seen == list(range(1, tier.top + 1))


@given(tiers(), st.integers(1, 20), st.data())
def test_history_walk_while_messages_move_to_the_warm_tier_has_no_gap(
    tier: Tiers, limit: int, data: st.DataObject
) -> None:
    """Messages are persisted and trimmed between two pages."""
    page, seen = read(tier, limit=limit)
    while page.has_more:
        tier.warm_top = data.draw(st.integers(tier.warm_top, tier.top))
        tier.hot = range(data.draw(st.integers(tier.hot.start, tier.warm_top + 1)), tier.top + 1)
        page, seqs = read(tier, before=seen[0], limit=limit)
        assert seqs
        seen = seqs + seen

    assert seen == list(range(1, tier.top + 1))


@given(tiers().filter(lambda tier: len(tier.hot) > 2), st.data())
def test_history_with_a_gap_in_the_hot_tier_never_skips_it(
    tier: Tiers, data: st.DataObject
) -> None:
    """A page is contiguous or refused."""
    tier.gaps = frozenset({data.draw(st.sampled_from(list(tier.hot)))})

    for fields in ({}, {"after": data.draw(st.integers(0, tier.top))}):
        try:
            _, seqs = read(tier, limit=20, **fields)
        except Unavailable:
            continue
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True


@given(tiers().filter(lambda tier: tier.warm_top > 2), st.data())
def test_history_with_a_gap_in_the_warm_tier_never_skips_it(
    tier: Tiers, data: st.DataObject
) -> None:
    """A page is contiguous and adjacent to the position, or refused."""
    tier.warm_gaps = frozenset({data.draw(st.integers(1, tier.warm_top))})
    position = data.draw(st.integers(1, tier.top))

    for fields, end in (({"before": position + 1}, -1), ({"after": position - 1}, 0)):
        try:
            _, seqs = read(tier, limit=20, **fields)
        except Unavailable:
            continue
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert seqs[end] == position


@pytest.mark.parametrize("fields", [{"before": 40}, {"after": 3}])
def test_history_page_with_the_warm_tier_down_is_refused(
    fields: dict[str, int | None],
) -> None:
    """The error names the tier; no partial page is returned as complete (guarantee P9)."""
    tier = Tiers(100, range(50, 101), 100, error=Unavailable("the warm tier did not respond"))

    with pytest.raises(Unavailable, match="warm tier"):
        read(tier, limit=20, **fields)


def test_history_page_of_the_hot_tier_needs_no_other_tier() -> None:
    """With the warm tier down, the hot tier can be read."""
    tier = Tiers(100, range(50, 101), 100, error=Unavailable("down"))

    page, seqs = read(tier, limit=20)

    assert seqs == list(range(81, 101))
    assert (page.tier, page.has_more) == ("hot", True)


def test_history_message_in_no_tier_is_named_in_the_error() -> None:
    """A page never begins after a gap."""
    tier = Tiers(100, range(50, 101), 30)

    with pytest.raises(Unavailable, match="message 49 cannot be read now"):
        read(tier, before=50, limit=20)
    with pytest.raises(Unavailable, match="message 31 cannot be read now"):
        read(tier, after=30, limit=20)


@pytest.mark.parametrize("hot_first", [1, 20, 41])
@pytest.mark.parametrize("fields", [{}, {"after": 0}])
def test_history_page_is_bounded_in_bytes(hot_first: int, fields: dict[str, int | None]) -> None:
    """Large bodies make short pages with `has_more`."""
    tier = Tiers(40, range(hot_first, 41), 40, body="x" * 16_000)

    page, seqs = read(tier, limit=40, **fields)

    size = sum(map(len, page.messages))
    assert BYTES_MAX - 17_000 < size <= BYTES_MAX
    assert page.has_more
    assert (seqs[-1] == 40) if not fields else (seqs[0] == 1)


@pytest.mark.parametrize("hot_first", [1, 41])
@pytest.mark.parametrize("fields", [{}, {"after": 0}])
def test_history_page_is_bounded_by_the_settings(
    hot_first: int, fields: dict[str, int | None]
) -> None:
    """Both the number of messages and the bytes are limited."""
    tier = Tiers(40, range(hot_first, 41), 40, body="x" * 1_000)

    few, three = read(tier, PageBounds(items_max=3), limit=40, **fields)
    small, five = read(tier, PageBounds(bytes_max=6_000), limit=40, **fields)

    assert (len(three), len(five)) == (3, 5)
    assert few.has_more
    assert small.has_more


@pytest.mark.parametrize("fields", [{"before": None}, {"after": 0}])
@pytest.mark.parametrize("hot_first", [1, 201], ids=["hot", "warm"])
def test_history_renders_only_the_messages_of_the_page(
    monkeypatch: pytest.MonkeyPatch, hot_first: int, fields: dict[str, int | None]
) -> None:
    """200 long messages would take 30 ms of the event loop."""
    rendered: list[int] = []
    render_entry, render_message = View.render_entry, View.render_message

    def count_entry(view: View, entry: LogEntry, now_s: float) -> bytes:
        rendered.append(entry.seq)
        return render_entry(view, entry, now_s)

    def count_message(view: View, message: frames.Message, now_s: float) -> frames.Message:
        rendered.append(message.seq)
        return render_message(view, message, now_s)

    monkeypatch.setattr(View, "render_entry", count_entry)
    monkeypatch.setattr(View, "render_message", count_message)
    tier = Tiers(200, range(hot_first, 201), 200, body="x" * 16_000)

    page, seqs = read(tier, limit=200, **fields)

    assert page.has_more
    assert len(seqs) < len(rendered) == len(seqs) + 1


def test_history_message_larger_than_a_page_is_alone_in_its_page() -> None:
    """A page has at least one message; otherwise no client could continue."""
    tier = Tiers(3, range(1, 4), 3, body="x" * (BYTES_MAX + 1))

    page, seqs = read(tier, limit=3)

    assert seqs == [3]
    assert page.has_more


def test_history_of_empty_chat_is_an_empty_page() -> None:
    """An empty chat is not an error."""
    page, seqs = read(Tiers(0, range(1, 1), 0), limit=20)

    assert (seqs, page.tier, page.has_more) == ([], "hot", False)


def test_history_with_both_directions_is_refused() -> None:
    """A page has one direction."""
    with pytest.raises(BadRequest, match="before, after: only one of them"):
        read(Tiers(10, range(1, 11), 10), before=5, after=2)


@pytest.mark.parametrize(("reader", "chat"), [(CAROL, CHAT), (ALICE, "c9")])
async def test_history_for_a_non_member_is_not_found(reader: str, chat: str) -> None:
    """The error does not reveal whether the chat exists (guarantee P7)."""
    tier = Tiers(10, range(1, 11), 10)
    history = HistoryPages(log=tier, older=tier, members=KnownAudiences(audience_of(ALICE, BOB)))

    with pytest.raises(NotFound, match="no such chat, or you are not a member"):
        await history.get_page(reader, frames.History(id=1, chat=chat))  # type: ignore[arg-type]  # a plain name
    assert tier.warm_calls == 0
