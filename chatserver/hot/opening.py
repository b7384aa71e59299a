"""Brings chats and users from the warm tier into the hot one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.membershipchanges import ChangePlace, MembershipChange
from chatserver.domain.messages import (
    format_place,
    generation_phase,
    reference_key,
    stored_digest_of,
)
from chatserver.domain.moderation import format_standing
from chatserver.hot.client import HotClient
from chatserver.hot.eviction import Eviction
from chatserver.hot.expiring import ExpiringMessages
from chatserver.hot.membership import HotMembership, change_input, parse_changed
from chatserver.hot.scripts import Script, Value, combine, load_script
from chatserver.protocol import frames
from chatserver.protocol.entries import is_message

_OPENED, _READ_TOO_EARLY, _OTHER_EPOCH = 1, 2, 3


def _digest_of(message: frames.Message) -> str:
    """Return what a retry is compared with: nothing, if the text is gone or another by now."""
    if message.deleted or message.edited_ts:
        return ""
    return stored_digest_of(
        message.kind,
        message.body,
        message.reply_to or message.target,
        [each.id for each in message.attachments],
        expires=message.expires_at is not None,
    )


class Opening:
    """Writes what the warm tier knows, unless the hot tier knows it already."""

    def __init__(self, hot: HotClient, clock: Clock | None = None) -> None:
        self._hot = hot
        self._eviction = Eviction(hot)
        self._expiring = ExpiringMessages(hot)
        self._clock = clock or SystemClock()

    @property
    def ref_ttl_s(self) -> int:
        """The lifetime of a client reference, in seconds."""
        return self._hot.settings.ref_ttl_s

    async def open_chat(
        self,
        chat: ChatId,
        kind: str,
        name: str | None,
        version: int,
        members: Mapping[UserId, tuple[str, int]],
        head: tuple[int, int],
        newest: Sequence[frames.Message],
        history: str = "joined",
        epoch: Epoch | None = None,
        large: int = 0,
        strictness: str = "",
        muted: Mapping[UserId, int] | None = None,
        changes: Sequence[MembershipChange] = (),
        places: Mapping[int, int] | None = None,
    ) -> bool:
        """Make a chat usable in the present epoch; False if it has to be read again.

        `members` maps to (role, joined seq); `head` is the newest (seq, ts) of the warm tier, and
        `newest` its last messages. `epoch` is the one in which all this was read: what was read
        before Redis lost a chat may miss a change that it had (promise P7). `large` is the version
        with which it became a large chat, 0 if it is none. `strictness` is what stands behind its
        gate, `muted` who may not write, until when (`chatserver.domain.moderation`). `changes` are
        not in Redis: they are made with the opening. `places` are the first seqs of others, by
        version, of which some tier has the entries.

        Guarantees:
            Order: seq and ts go on above all that either tier has given out (promise P3).
            Idempotent: references of `newest` are recognised, of messages those of the last
            `ref_ttl_s`; a chat that is open stays as it is.
            Atomic: nobody finds the chat open and the `changes` not made; their new members read
            nothing from before the entry that says they joined.
        """
        keys = self._hot.keys
        partition = keys.partition_of(chat)
        script = load_script("open_chat")
        present = self._hot.epoch_of(partition)
        if epoch not in (None, present):
            return False
        names: list[Value] = [
            keys.chat(chat),
            keys.members(chat),
            keys.log(chat),
            keys.over(chat),
            keys.revs(chat),
            keys.asides(chat),
            keys.epoch(partition),
            keys.refs_even(chat),
            keys.refs_odd(chat),
            keys.turnover(chat),
        ]
        args: list[Value] = [
            present,
            *head,
            f"{version}{strictness}",
            kind,
            name or "",
            history,
            large,
            self._hot.settings.ref_ttl_s,
            generation_phase(chat),
            # Newest first: Redis forgets the last of them.
            ",".join(f"{number}:{first}" for number, first in sorted((places or {}).items())[::-1]),
        ]
        newcomers = {user for change in changes for user in change.newcomers}
        known = {user: member for user, member in members.items() if user not in newcomers}
        args.append(len(known))
        for user, (role, joined) in known.items():
            args += (user, format_standing(role, joined, (muted or {}).get(user)))
        for message in newest:
            args.append(reference_key(message.sender, message.ref))
            digest = _digest_of(message)
            args.append(format_place(message.seq, message.ts, message.mid, digest))
            is_over = message.expires_at is not None and message.expires_at <= self._clock.time()
            mark = "#" if message.deleted or is_over else ""
            args.append(mark + message.sender if is_message(message) else "")
        if not changes:
            reply = await self._hot.call("EVAL", script.source, len(names), *names, *args)
        else:
            reply = await self._open_with(changes, script, names, args)
        if int(reply) == _OPENED:
            expiries = {one.seq: one.expires_at for one in newest if one.expires_at is not None}
            if expiries:
                self._expiring.add(chat, expiries)
            await self._eviction.note_active(partition, [chat], self._clock.time())
        if int(reply) == _OTHER_EPOCH:
            self._hot.doubt_epoch(partition, present)
        return int(reply) != _READ_TOO_EARLY

    async def _open_with(
        self,
        changes: Sequence[MembershipChange],
        script: Script,
        names: list[Value],
        args: list[Value],
    ) -> Any:
        """Open a chat and make changes of its membership, as one."""
        made = load_script("change_members")
        keys, values, sizes = [*names], [*args], [len(names), len(args)]
        for change in changes:
            more_names, more_args = made.bind(*change_input(self._hot, change))
            keys += more_names
            values += more_args
            sizes += [len(more_names), len(more_args)]
        scripts = [script, *[made] * len(changes)]
        replies = await self._hot.call("EVAL", combine(*scripts), len(keys), *keys, *sizes, *values)
        return replies[0]

    async def find_changes(self, chat: ChatId) -> dict[int, ChangePlace]:
        """Return where Redis has the entries of the last changes of a chat, open or not."""
        return parse_changed(await self._hot.call("HGET", self._hot.keys.chat(chat), "changed"))

    async def get_seq(self, chat: ChatId) -> Seq:
        """Return the newest seq that Redis has of a chat, open or not; 0 if it knows nothing."""
        return Seq(int(await self._hot.call("HGET", self._hot.keys.chat(chat), "seq") or 0))

    async def note_unfinished(self, chat: ChatId) -> None:
        """Note that a change of the chat's membership was begun, and has to be finished."""
        await HotMembership(self._hot).begin(chat, 0)

    def epoch_of_chat(self, chat: ChatId) -> Epoch:
        """Return the epoch in which a chat is to be opened; take it before reading the chat."""
        return self._hot.epoch_of(self._hot.keys.partition_of(chat))

    def epoch_of_user(self, user: UserId) -> Epoch:
        """Return the epoch in which a box is to be filled; take it before reading the directory."""
        return self._hot.epoch_of(self._hot.keys.partition_of(user))
