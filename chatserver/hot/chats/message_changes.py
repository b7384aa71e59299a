"""Message changes (edits, deletes, reactions), and messages that users delete for themselves.

Data: ``{pN}:over:<chat>`` (hash, seq → JSON) has the current state of each changed entry;
``{pN}:revs:<chat>`` (zset) has the seq of the last change to each of them. Bound: for each change
in the log, at most two entries: the changed message and its previous edit, which loses its text.
``{pN}:hidden:<user>`` (hash, chat → seqs) has the messages that a user deleted for themselves
(`HiddenSeqs`), at most `HIDDEN_MAX` per chat. Its field ``!`` is the id of the newest backlog entry
for a hidden message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.inboxes import AppendResult
from chatserver.domain.message_change_types import (
    ChangeOutcome,
    ChangeResult,
    HiddenSeqs,
    Hide,
    MessageChange,
)
from chatserver.domain.messages import format_name, reference_key
from chatserver.errors import CorruptData, Overloaded, TooLarge
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.scripts import Value, allow_oom, load_script
from chatserver.hot.users.inbox import parse_gateways
from chatserver.protocol import codec
from chatserver.protocol.frames import REACTIONS_MAX

HIDDEN_MAX = 500

_FULL, _HIDES_TOO_MANY = 6, 2
_OUTCOMES = {outcome.value: outcome for outcome in ChangeOutcome}
_BACKLOG_FULL = "the backlog is full; wait until messages are persisted"


class MessageChangeCommitter:
    """Commits changes for one gateway."""

    def __init__(self, hot: HotClient, gateway: GatewayId) -> None:
        self._hot = hot
        self._gateway = gateway

    async def commit_change(
        self, change: MessageChange, base: bytes = b"", base_head: int = 0, author: str = ""
    ) -> ChangeResult:
        """Commit a change, or return why it was rejected.

        `base` is the target message's JSON from the warm tier, or empty. It is used only if the hot
        tier has no newer version. `base_head` is the chat's newest seq before `base` was read.
        `author` is set for an erasure: the change deletes a message of this user, and the sender
        need not be a member.

        Guarantees:
            Atomic: membership, role and the target's state are checked together with the commit.
            Idempotent: by (chat, sender, ref); a message cannot have the same ref.
            Cost: one script call.
            A delete also works when Redis is full.

        Raises:
            Unavailable: Redis did not respond; the change may have been committed. Retry with the
                same ref.
            Overloaded: the backlog is full.
        """
        keys, settings = self._hot.keys, self._hot.settings
        chat, sender = change.chat, change.sender
        script = load_script("commit_change")
        if change.kind == "delete":
            script = allow_oom(script)
        code, *rest = await self._hot.run(
            script,
            keys.of(chat, *script.keys),
            {
                "epoch": self._hot.get_epoch(keys.get_partition(chat)),
                "gateway": self._gateway,
                "backlog_max": settings.backlog_max,
                "reactions_max": REACTIONS_MAX,
                "chat_id": chat,
                "sender": sender,
                "name": format_name(change.mid, change.digest),
                "kind": change.kind,
                "target": change.target,
                "body": change.body,
                "tail": change.tail,
                "base": base,
                "asked": base_head,
                "author": author,
                "ref": reference_key(sender, change.ref),
                "readable": "1" if change.is_of_earlier_period else "",
                "target_ref": change.target_ref,
            },
            is_commit=True,
        )
        if code == _FULL:
            raise Overloaded(_BACKLOG_FULL)
        outcome = _OUTCOMES.get(code)
        if outcome is None:
            raise CorruptData(f"commit_change.lua returned {code!r}")
        match outcome:
            case ChangeOutcome.COMMITTED:
                return ChangeResult(outcome, rest[0], rest[1], size_bytes=rest[2])
            case ChangeOutcome.KNOWN:
                return ChangeResult(outcome, record=rest[0])
            case ChangeOutcome.ELSEWHERE | ChangeOutcome.RESTRICTED | ChangeOutcome.DELETED:
                return ChangeResult(outcome, rest[0])
            case _:
                return ChangeResult(outcome)


class HiddenMessages:
    """Messages that users deleted for themselves."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot

    async def hide(self, user: UserId, chat: ChatId, seq: Seq) -> tuple[Hide, AppendResult]:
        """Hide a message from the user; the persist worker writes this to the `directory` table.

        Guarantees:
            The user's inbox has the event, once, even if an earlier call got no reply.

        Raises:
            TooLarge: the user has already hidden `HIDDEN_MAX` messages in the chat.
            Overloaded: the backlog is full.
        """
        script = load_script("hide_message")
        code, *appended = await self._hot.run(
            script,
            self._hot.keys.of(user, *script.keys),
            {
                "chat_id": chat,
                "user": user,
                "seq": seq,
                "hidden_max": HIDDEN_MAX,
                "backlog_max": self._hot.settings.backlog_max,
                "inbox_max": self._hot.settings.inbox_max,
                "body": codec.encode_hidden_event_body(chat, [seq]),
            },
        )
        if code == _HIDES_TOO_MANY:
            raise TooLarge(
                f"seq: you can delete at most {HIDDEN_MAX} messages in a chat for yourself"
            )
        if code == _FULL:
            raise Overloaded(_BACKLOG_FULL)
        outcome, (inbox_seq, gateways) = Hide(code), appended
        is_new = int(outcome is Hide.NEW)
        return outcome, AppendResult(user, is_new, Seq(inbox_seq), parse_gateways(gateways))

    async def list_hidden(self, user: UserId, chats: Sequence[ChatId]) -> dict[ChatId, HiddenSeqs]:
        """Return the user's hidden seqs by chat; chats without any are omitted."""
        if not chats:
            return {}
        lists = await self._hot.call("HMGET", self._hot.keys.hidden(user), *chats)
        return {
            chat: HiddenSeqs(map(int, hidden.split(b",")))
            for chat, hidden in zip(chats, lists, strict=True)
            if hidden
        }

    async def open_hidden(self, user: UserId, hidden: Mapping[ChatId, Sequence[int]]) -> None:
        """Add a user's hidden messages from the `directory` table to the hidden ones in Redis."""
        items: list[dict[str, Value]] = [
            {"chat_id": chat, "seqs": ",".join(map(str, seqs))}
            for chat, seqs in hidden.items()
            if seqs
        ]
        if items:
            keys: dict[str, Value] = {"hidden": self._hot.keys.hidden(user)}
            await self._hot.run(load_script("load_hidden"), keys, {}, items)

    async def remove_hidden(self, user: UserId, chat: ChatId, seqs: Sequence[int]) -> None:
        """Remove the seqs of lost messages, which will be assigned again. Idempotent."""
        keys: dict[str, Value] = {"hidden": self._hot.keys.hidden(user)}
        args: dict[str, Value] = {"chat_id": chat, "seqs": ",".join(map(str, seqs))}
        await self._hot.run(load_script("remove_hidden"), keys, args)
