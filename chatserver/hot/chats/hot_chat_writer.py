"""Writes chats from the warm tier to the hot tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chatserver.domain.archive_segments import LOST_KIND
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.domain.membership_change_types import ChangePosition, MembershipChange
from chatserver.domain.messages import (
    REF_TTL_S,
    compute_stored_digest,
    format_ref_record,
    reference_key,
)
from chatserver.domain.write_restrictions import format_member_status
from chatserver.hot.chats.eviction import Eviction
from chatserver.hot.chats.expiring_messages import ExpiringMessages
from chatserver.hot.chats.membership import HotMembership, build_change_input, parse_changed
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Script, Value, combine, load_script
from chatserver.protocol import frames
from chatserver.protocol.message_change_effects import is_message

_OPENED, _READ_TOO_EARLY, _OTHER_EPOCH = 1, 2, 3


def _compute_digest(message: frames.Message) -> str:
    """Return the digest of the request that sent the message, to compare it with a retry.

    Return "" if the text was deleted or edited.
    """
    if message.deleted or message.edited_ts:
        return ""
    return compute_stored_digest(
        message.kind,
        message.body,
        message.reply_to or message.target,
        [attachment.id for attachment in message.attachments],
        expires=message.expires_at is not None,
    )


class HotChatWriter:
    """Writes warm-tier data to Redis if Redis does not have it."""

    def __init__(self, hot: HotClient, clock: Clock | None = None) -> None:
        self._hot = hot
        self._eviction = Eviction(hot)
        self._expiring = ExpiringMessages(hot)
        self._clock = clock or SystemClock()

    @property
    def ref_ttl_s(self) -> int:
        """The lifetime of a `ref`, in seconds."""
        return REF_TTL_S

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
        write_policy: str = "",
        muted: Mapping[UserId, int] | None = None,
        changes: Sequence[MembershipChange] = (),
        change_positions: Mapping[int, int] | None = None,
        picture: str = "",
    ) -> bool:
        """Load a chat in the current epoch; return False if the caller must read the chat again.

        - `members` maps users to (role, chat seq at which the user joined).
        - `head` is the newest (seq, ts) that the warm tier has for the chat; `newest` has the
          chat's last messages.
        - `epoch` is the epoch in which the data was read. If Redis has a later epoch, nothing is
          loaded: the data may lack a change that Redis had (guarantee P7).
        - `large` is the chat version at which the chat became large, or 0.
        - `write_policy` is stored in the `gate` field, after the version.
        - `muted` maps muted users to the end of the mute (`chatserver.domain.write_restrictions`).
        - `changes` are membership changes that Redis does not have yet; the load applies them.
        - `change_positions` maps the chat version of each recent change of members or settings to
          the seq of the change's first entry.

        Guarantees:
            Order: new seqs and ts are above all that either tier has assigned (guarantee P3).
            Idempotent: a loaded chat is not changed. Retries of messages in `newest` are recognized
                for `ref_ttl_s`.
            Atomic: the chat and `changes` become visible together. New members read nothing before
                their join.
        """
        keys = self._hot.keys
        partition = keys.get_partition(chat)
        script = load_script("load_chat")
        present = self._hot.get_epoch(partition)
        if epoch not in (None, present):
            return False
        names: list[Value] = list(keys.of(chat, *script.keys).values())
        args: list[Value] = [
            present,
            *head,
            f"{version}{write_policy}",
            kind,
            name or "",
            history,
            large,
            REF_TTL_S,
            # Newest changes first, because the script keeps only the first ones in the list.
            ",".join(
                f"{number}:{first}"
                for number, first in sorted((change_positions or {}).items())[::-1]
            ),
            picture,
            ",".join(str(message.seq) for message in newest if _is_dead_letter(message)),
        ]
        newcomers = {user for change in changes for user in change.newcomers}
        others = {user: member for user, member in members.items() if user not in newcomers}
        args.append(len(others))
        for user, (role, joined) in others.items():
            args += (user, format_member_status(role, joined, (muted or {}).get(user)))
        for message in newest:
            args.append(reference_key(message.sender, message.ref))
            digest = _compute_digest(message)
            args.append(format_ref_record(message.seq, message.ts, message.mid, digest))
            is_over = message.expires_at is not None and message.expires_at <= self._clock.time()
            mark = "#" if message.deleted or is_over else ""
            args.append(mark + message.sender if is_message(message) else "")
        if not changes:
            reply = await self._hot.call("EVAL", script.source, len(names), *names, *args)
        else:
            reply = await self._open_with(changes, script, names, args)
        if int(reply) == _OPENED:
            expiries = {
                entry.seq: entry.expires_at for entry in newest if entry.expires_at is not None
            }
            if expiries:
                self._expiring.add(chat, expiries)
            await self._eviction.record_active(partition, [chat], self._clock.time())
        if int(reply) == _OTHER_EPOCH:
            self._hot.raise_epoch_lost(partition, present)
        return int(reply) != _READ_TOO_EARLY

    async def _open_with(
        self,
        changes: Sequence[MembershipChange],
        script: Script,
        names: list[Value],
        args: list[Value],
    ) -> Any:
        """Load a chat and apply membership changes, in one atomic call."""
        loaded_script = load_script("change_members")
        keys, values, sizes = [*names], [*args], [len(names), len(args)]
        for change in changes:
            more_names, more_args = loaded_script.bind(*build_change_input(self._hot, change))
            keys += more_names
            values += more_args
            sizes += [len(more_names), len(more_args)]
        scripts = [script, *[loaded_script] * len(changes)]
        replies = await self._hot.call("EVAL", combine(*scripts), len(keys), *keys, *sizes, *values)
        return replies[0]

    async def find_changes(self, chat: ChatId) -> dict[int, ChangePosition]:
        """Return the last membership changes, by chat version; the chat need not be loaded."""
        return parse_changed(await self._hot.call("HGET", self._hot.keys.chat(chat), "changed"))

    async def get_seq(self, chat: ChatId) -> Seq:
        """Return the chat's newest seq in Redis, or 0; the chat need not be loaded."""
        return Seq(int(await self._hot.call("HGET", self._hot.keys.chat(chat), "seq") or 0))

    async def record_unfinished(self, chat: ChatId) -> None:
        """Record that worker `repair` must finish a membership change of this chat."""
        await HotMembership(self._hot).begin(chat, 0)

    def get_chat_epoch(self, chat: ChatId) -> Epoch:
        """Return the epoch of a chat's partition. Call this before reading the data to load."""
        return self._hot.get_epoch(self._hot.keys.get_partition(chat))

    def get_user_epoch(self, user: UserId) -> Epoch:
        """Return the epoch of a user's partition. Call this before reading the data to load."""
        return self._hot.get_epoch(self._hot.keys.get_partition(user))


def _is_dead_letter(message: frames.Message) -> bool:
    """Return whether the warm tier has only a tombstone, because it rejected the message.

    The `rev` of a message that was deleted later is higher. The warm tier returns 0 for 1.
    """
    is_tombstone = message.deleted and message.kind != LOST_KIND
    return is_tombstone and (message.rev or 1) == message.seq
