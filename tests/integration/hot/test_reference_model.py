"""Model-based test of accept, deliver, finish_fan_outs and evict_chats in any order.

The steps are sends, retries, batches for two chats, membership changes, outdated audiences,
concurrent fan-outs that are delayed, repeated or stopped at any point, evictions, and new epochs.
Redis must agree with the model, and no inbox may miss, repeat or reorder a message.
"""

from __future__ import annotations

import dataclasses

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from chatserver.domain.ids import ChatId, Epoch, UserId
from chatserver.domain.messages import REF_TTL_S, Audience, reference_key
from chatserver.hot.chats.audience_cache import make_audience
from tests.integration.hot.reference_model import HotModel
from tests.integration.hot.support import (
    ALICE,
    BOB,
    CAROL,
    COMMITTED,
    GATEWAY,
    KNOWN,
    UNDELIVERED,
    Scripts,
    Sending,
    group_by_chat,
)
from tests.support.servers.processes import redis_client

USERS = (ALICE, BOB, CAROL)
CHATS = (ChatId("c1"), ChatId("c2"))

REFS = [f"r{n}" for n in range(30)]
STEPS = ("send", "send", "send", "fan out", "fan out", "fan out", "disturb")

any_user, any_chat = st.sampled_from(USERS), st.sampled_from(CHATS)


@dataclasses.dataclass
class FanOut:
    """A running fan-out: the audience that it read, and the users without a delivery."""

    audience: Audience
    upto: int
    missing: set[UserId]


class HotMachine(RuleBasedStateMachine):
    """Applies the same steps to Redis and to the model."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        self._scripts = Scripts(client)
        self._model = HotModel(USERS, CHATS)
        self._last_ts = dict.fromkeys(CHATS, 0)
        self._backlog_entries = 0
        self._epochs = 1
        self._fan_outs: list[FanOut] = []
        # Results that gateways may use at any later time:
        self._undelivered: list[tuple[ChatId, int]] = []  # messages left to a fan-out
        # Delivered messages; other gateways are notified.
        self._notified: list[tuple[ChatId, int]] = []

    @initialize()
    def open(self) -> None:
        """Open both chats, with the first two users as members."""
        self._scripts.redis.flushall()
        for chat in CHATS:
            self._open(chat)

    def _open(self, chat: ChatId) -> None:
        names, state = self._scripts.keys, self._model.chats[chat]
        self._scripts.open_chat(
            chat=chat,
            epoch=self._model.epoch,
            version=state.version,
            seq=state.stored,
            ts=self._last_ts[chat] if state.stored else 0,
        )
        for user, first in state.joined.items():
            self._scripts.redis.hset(names.members(chat), user, f"member:{first}")
        self._model.open_chat(chat)

    @rule(data=st.data(), what=st.sampled_from(STEPS), chat=any_chat, user=any_user)
    def step(self, data: st.DataObject, what: str, chat: ChatId, user: UserId) -> None:
        """Make one step. A single rule keeps the frequencies of steps the same in every run."""
        if what == "send":
            self._send(data)
        elif what == "fan out":
            self._fan_out(data)
        else:
            self._change_other_state(data, chat, user)

    # the commit

    def _send(self, data: st.DataObject) -> None:
        """Send a batch of messages, some with refs that were used before."""
        batch = self._draw_batch(data)

        answers = self._scripts.accept(*batch, epoch=self._model.epoch)

        expected = {
            chat: self._model.accept(chat, group) for chat, group in group_by_chat(batch).items()
        }
        new = {COMMITTED, UNDELIVERED} & {answer.code for answer in answers}
        self._backlog_entries += bool(new)
        for sending, answer in zip(batch, answers, strict=True):
            chat = sending.chat
            code, seq, places = expected[chat].pop(0)
            assert answer.code == code
            assert tuple(inboxed.seq for inboxed in answer.inboxes) == places
            if code == KNOWN:
                assert answer.place.startswith(f"{seq}:")
            elif code in (COMMITTED, UNDELIVERED):
                assert answer.seq == seq
                assert answer.ts > self._last_ts[chat]
                self._last_ts[chat] = answer.ts
                if code == UNDELIVERED:
                    self._undelivered.append((chat, seq))
                elif any(inboxed.far for inboxed in answer.inboxes):
                    self._notified.append((chat, seq))

    def _draw_batch(self, data: st.DataObject) -> list[Sending]:
        # The caller's audience of each chat is mostly the current one, sometimes an earlier one.
        views = {}
        for chat, state in self._model.chats.items():
            back = data.draw(st.sampled_from((1, 1, 1, 2, 3)))
            gate, audience = state.audiences[-min(back, len(state.audiences))]
            views[chat] = gate, audience, data.draw(st.sampled_from((True, True, True, False)))
        batch = []
        for _ in range(data.draw(st.integers(1, 4))):
            chat = data.draw(any_chat)
            gate, audience, is_near = views[chat]
            sender = data.draw(st.sampled_from((*audience, *audience, *USERS)))
            ref = data.draw(st.sampled_from(REFS))
            to, is_member = audience if is_near else (), sender in audience
            batch.append(Sending(sender, ref, chat, to, gate, is_member=is_member))
        return batch

    # concurrent fan-outs

    def _fan_out(self, data: st.DataObject) -> None:
        """Continue a fan-out: read a chat, deliver to members, and settle.

        It may stop at any point, and continue or repeat its steps later or never.
        """
        work = self._draw_work(data)
        if work is None:
            return
        audience, chat = work.audience, work.audience.chat
        scope = data.draw(st.sampled_from(("all", "all", "some", "none")))
        for user, floor in audience.users.items():
            if scope == "all" or (scope == "some" and data.draw(st.booleans())):
                after = max(floor, audience.done)
                epoch = audience.epoch
                appended, newest, _ = self._scripts.deliver(
                    user, work.upto, after=after, chat=chat, epoch=epoch
                )
                expected = self._model.deliver(user, chat, after, work.upto, epoch)
                assert (appended, newest) == expected
                work.missing.discard(user)
        if not work.missing and data.draw(st.sampled_from((True, True, False))):
            self._finish_fan_outs(chat, work.upto)

    def _draw_work(self, data: st.DataObject) -> FanOut | None:
        """Return a running fan-out, a new one of a gateway, or a repair."""
        kind = data.draw(st.sampled_from(("running", "gateway", "gateway", "repair")))
        listed = [chat for chat, state in self._model.chats.items() if state.is_listed]
        if kind == "running" and self._fan_outs:
            return data.draw(st.sampled_from(self._fan_outs))
        if kind == "repair" and listed:
            audience = self._read_audience(data.draw(st.sampled_from(listed)))
            upto = audience.top
        elif self._undelivered:
            # Mostly the newest message; an older one is as from a slow gateway.
            chat, seq = self._undelivered[
                -data.draw(st.integers(1, min(3, len(self._undelivered))))
            ]
            audience = self._read_audience(chat)
            upto = min(seq, audience.top)
        else:
            return None
        self._fan_outs = [*self._fan_outs[-2:], FanOut(audience, upto, set(audience.users))]
        return self._fan_outs[-1]

    def _read_audience(self, chat: ChatId) -> Audience:
        if not self._model.is_open(chat):
            self._open(chat)
        keys, client = self._scripts.keys, self._scripts.redis
        head, members = client.hgetall(keys.chat(chat)), client.hgetall(keys.members(chat))
        return make_audience(keys, chat, Epoch(self._model.epoch), head, members)

    def _finish_fan_outs(self, chat: ChatId, upto: int) -> None:
        assert self._scripts.finish_fan_outs((chat, upto)) == self._model.finish_fan_outs(
            chat, upto
        )

    # other changes

    def _change_other_state(self, data: st.DataObject, chat: ChatId, user: UserId) -> None:
        """Change members, move a user to another gateway, settle, evict, or begin a new epoch."""
        what = data.draw(st.sampled_from(("members", "move", "settle", "settle", "evict", "epoch")))
        if what == "members" and self._model.is_open(chat):
            self._change_members(chat, user)
        elif what == "move":
            self._move(user, data.draw(st.sampled_from(("", GATEWAY, "gw-far"))))
        elif what == "settle" and self._notified:
            # The committing gateway may have notified the others long ago.
            self._finish_fan_outs(*data.draw(st.sampled_from(self._notified[-3:])))
        elif what == "evict" and self._scripts.head(chat):
            self._evict(chat)
        elif what == "epoch" and data.draw(st.integers(0, 4)) == 0:
            # The data is the same, but pending calls have failed.
            self._epochs += 1
            self._model.epoch = f"E1{self._epochs:03}"
            self._fan_outs.clear()
            self._notified.clear()
        elif not self._model.is_open(chat):
            self._open(chat)

    def _change_members(self, chat: ChatId, user: UserId) -> None:
        self._model.change_members(chat, user)
        names, state = self._scripts.keys, self._model.chats[chat]
        if user in state.joined:
            self._scripts.redis.hset(names.members(chat), user, f"member:{state.joined[user]}")
        else:
            self._scripts.redis.hdel(names.members(chat), user)
        self._scripts.redis.hset(names.chat(chat), "gate", state.gate)

    def _evict(self, chat: ChatId) -> None:
        """Persist the chat, and evict it if nothing is pending. Its inbox entries stay."""
        names, state = self._scripts.keys, self._model.chats[chat]
        self._scripts.redis.hset(names.chat(chat), "stored", state.seq)
        evicted = self._scripts.run(
            "evict_chats", {"idle_s": 0, "ref_ttl_s": REF_TTL_S}, [{"chat_id": chat}]
        )
        assert evicted == self._model.evict(chat)

    def _move(self, user: UserId, gateway: str) -> None:
        self._model.users[user].gateway = gateway
        if gateway:
            self._scripts.place(user, gateway)
        else:
            self._scripts.redis.hdel(self._scripts.keys.where(0), user)

    # invariants

    @invariant()
    def chats_are_as_in_the_model(self) -> None:
        """Compare heads, refs, logs, the list of unfinished fan-outs and the backlog."""
        listed = {chat for chat, state in self._model.chats.items() if state.is_listed}
        assert set(self._scripts.undelivered()) == listed
        assert self._scripts.count_backlog() == self._backlog_entries
        for chat, state in self._model.chats.items():
            head, refs = self._scripts.head(chat), self._scripts.refs(chat)
            assert {ref: int(place.split(":")[0]) for ref, place in refs.items()} == {
                reference_key(sender, ref): seq for (sender, ref), seq in state.places.items()
            }
            assert (self._scripts.redis.ttl(self._scripts.keys.chat(chat)) > 0) == (
                not head and bool(refs)
            )
            if head:  # absent before it is opened, and after an eviction
                assert (int(head["seq"]), head["gate"]) == (state.seq, state.gate)
                if state.is_pending:
                    assert int(head["done"]) == state.done
                own = {name[2:]: int(seq) for name, seq in head.items() if name[:2] == "s:"}
                assert own == state.own
                assert [seq for seq, _, _ in self._scripts.log(chat)] == list(
                    range(state.stored + 1, state.seq + 1)
                )

    @invariant()
    def inboxes_are_as_in_the_model(self) -> None:
        """Compare entries, seqs without gaps, heads, and the positions that `deliver` recorded."""
        heads = self._scripts.seqs()
        for user, state in self._model.users.items():
            found = self._scripts.inbox(user)
            assert [(chat, int(cs)) for _, chat, cs in found] == state.inbox
            assert [seq for seq, _, _ in found] == list(range(1, len(found) + 1))
            assert heads.get(user, 0) == len(found)
            box = self._scripts.box(user)
            delivered = {name[2:]: value for name, value in box.items() if name[:2] == "t:"}
            assert delivered == {chat: f"{seq} {of}" for chat, (seq, of) in state.delivered.items()}

    @invariant()
    def no_member_misses_or_repeats_a_message(self) -> None:
        """Check that each inbox has each message since the join once and in order.

        Without a pending fan-out, it has messages up to the newest, otherwise at least up to
        `done`.
        """
        for chat, state in self._model.chats.items():
            for user in state.joined:
                floor = state.get_shards_min(user)
                got = [
                    cs
                    for of, cs in self._model.users[user].inbox  # equal to the real inbox
                    if of == chat and cs > floor
                ]
                assert got == list(range(floor + 1, floor + 1 + len(got)))
                least = state.done if state.is_pending else state.seq
                assert max(least, floor) <= floor + len(got) <= state.seq or floor >= state.seq


@pytest.mark.timeout(400)  # shrinking a failure takes minutes
def test_hot_scripts_in_any_order_agree_with_the_model(redis_url: str) -> None:
    """No order of sends, fan-outs, repairs and membership changes loses or repeats anything."""
    with redis_client(redis_url) as client:
        run_state_machine_as_test(
            lambda: HotMachine(client),
            settings=settings(
                max_examples=60,
                stateful_step_count=30,
                deadline=None,
                phases=[Phase.reuse, Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
