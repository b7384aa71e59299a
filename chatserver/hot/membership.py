"""The hot side of membership: changes of who is in a chat, and who may read it.

Data: ``{pN}:members:<chat>`` who is in it; ``{pN}:turnover:<chat>`` who has to be told yet that
they came or went; ``{pN}:changing`` which changes are under way, so that what a dead process left
between the directory and Redis is finished by another (`workers.repair`).
"""

from __future__ import annotations

from collections.abc import Sequence

from chatserver.domain.ids import ChatId, Ref, Seq, UserId, new_id
from chatserver.domain.membership import NOT_A_MEMBER, Reader
from chatserver.domain.moderation import parse_standing
from chatserver.errors import NotFound, Unavailable
from chatserver.hot.audience import Audiences
from chatserver.hot.client import HotClient
from chatserver.hot.scripts import load_script
from chatserver.hot.turns import Turn

OVERDUE_MAX = 100  # per look
LOADS_MAX = 3
_CLOSED = 0


class HotMembership:
    """Changes memberships in Redis."""

    def __init__(self, hot: HotClient) -> None:
        self._hot = hot
        self._keys = hot.keys

    # changes under way

    async def begin(self, chat: ChatId, hold_s: float) -> str:
        """Note that a change of the chat may be under way for `hold_s`; return the note's name."""
        name = f"{chat}:{new_id()}"
        key = self._keys.changing(self._keys.partition_of(chat))
        now_ms = await self._now_ms(key)
        await self._hot.call("ZADD", key, now_ms + int(hold_s * 1000), name)
        return name

    async def _now_ms(self, key: str) -> int:
        """Return the time of the Redis that has `key`: clocks of processes may differ."""
        _, (seconds, micros) = await self._hot.transaction(("EXISTS", key), ("TIME",))
        return int(seconds) * 1000 + int(micros) // 1000

    async def end(self, name: str) -> None:
        """Take a note back: its change is finished, or was not made."""
        chat = ChatId(name.partition(":")[0])
        key = self._keys.changing(self._keys.partition_of(chat))
        await self._hot.call("ZREM", key, name)

    async def list_overdue(self, partition: int) -> list[tuple[ChatId, str]]:
        """Return chats, with the note's name, whose change should have ended: its process died."""
        key = self._keys.changing(partition)
        now_ms = await self._now_ms(key)
        names = await self._hot.call("ZRANGEBYSCORE", key, "-inf", now_ms, "LIMIT", 0, OVERDUE_MAX)
        return [(ChatId(name.partition(b":")[0].decode()), name.decode()) for name in names]

    # one change

    async def find_digest(self, chat: ChatId, sender: UserId, ref: Ref) -> str | None:
        """Return the digest of what `sender` did under `ref`; None if nothing is known of it."""
        place: bytes | None = await self._hot.call("GET", self._keys.ref(chat, sender, ref))
        return None if place is None else place.decode().rpartition(":")[2]

    async def apply(
        self,
        chat: ChatId,
        version: int,
        settings: tuple[str, str],
        name: tuple[UserId, Ref, str, str],
        entries: Sequence[tuple[str, str, bool, bytes]],
        large: int = 0,
        turn: str = "",
    ) -> bool:
        """Make a change; False if the chat has to be loaded first.

        `version`, and `settings` (name and history) are those after it. `name` is what the change
        is called: sender, ref, mid of the first entry and digest. Each entry is about nobody or
        about a user: user, role or "" for one who leaves, whether that user is new, and its tail.
        `large` is the version with which the chat became a large one, 0 if it is none afterwards;
        `turn` is "up" or "down" if it turns so with this change.

        Guarantees:
            From here on no commit sees the membership as it was before (promise P7).
            Idempotent: a repeat, or one that comes after a later change, does nothing.
        """
        keys, (sender, ref, mid, digest) = self._keys, name
        partition = keys.partition_of(chat)
        reply = await self._hot.run(
            load_script("change_members"),
            {
                "chat": keys.chat(chat),
                "members": keys.members(chat),
                "log": keys.log(chat),
                "backlog": keys.backlog(partition),
                "checkpoint": keys.checkpoint(partition),
                "undelivered": keys.undelivered(partition),
                "turnover": keys.turnover(chat),
                "ref": keys.ref(chat, sender, ref),
                "asides": keys.asides(chat),
            },
            {
                "epoch": self._hot.epoch_of(partition),
                "chat_id": chat,
                "version": version,
                "name": settings[0],
                "history": settings[1],
                "ref_ttl_s": self._hot.settings.ref_ttl_s,
                "mid": mid,
                "digest": digest,
                "large": large,
                "turn": turn,
            },
            [
                {"user": user, "role": role, "is_new": "1" if is_new else "", "tail": tail}
                for user, role, is_new, tail in entries
            ],
            is_commit=True,
        )
        return int(reply[0]) != _CLOSED

    async def restrict(self, chat: ChatId, version: int, strictness: str) -> bool:
        """Set what a chat's gate demands as of `version`; False if it has to be loaded first.

        Guarantees:
            From here on no commit takes a sender whom it keeps from writing.
            Idempotent: a repeat, or one that comes after a later change, does nothing.
        """
        partition = self._keys.partition_of(chat)
        reply = await self._hot.run(
            load_script("restrict"),
            {"chat": self._keys.chat(chat)},
            {"epoch": self._hot.epoch_of(partition), "version": version, "strict": strictness},
        )
        return int(reply) != _CLOSED

    async def forget_turnover(self, chat: ChatId, turns: Sequence[Turn]) -> None:
        """Note that these were told."""
        if turns:
            key = self._keys.turnover(chat)
            await self._hot.call("HDEL", key, *(turn.field for turn in turns))

    async def find_head(self, chat: ChatId) -> Seq | None:
        """Return the newest seq of a chat; None if it is not open."""
        gate, seq = await self._hot.call("HMGET", self._keys.chat(chat), "gate", "seq")
        epoch = self._hot.epoch_of(self._keys.partition_of(chat))
        return Seq(int(seq)) if (gate or b"").startswith(f"{epoch}:".encode()) else None


class MemberCheck:
    """Says who may read a chat, and what of it."""

    def __init__(self, hot: HotClient, audiences: Audiences) -> None:
        self._hot = hot
        self._audiences = audiences

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        """Return what of a chat a member may read.

        Guarantees:
            Atomic: up to `head`, the chat is of a time at which the user was a member.
            Cost: one Redis round trip; the chat is loaded if it is not open.

        Raises:
            NotFound: no such chat, or not a member: the caller may not know which.
        """
        hot, keys = self._hot, self._hot.keys
        for _ in range(LOADS_MAX):
            (gate, seq, history, stored), member = await hot.transaction(
                ("HMGET", keys.chat(chat), "gate", "seq", "history", "stored"),
                ("HGET", keys.members(chat), user),
            )
            epoch = hot.epoch_of(keys.partition_of(chat))
            if not (gate or b"").startswith(f"{epoch}:".encode()):
                await self._audiences.get(chat)
                continue
            if member is None:
                break
            joined = parse_standing(member).joined
            first = Seq(1 if history == b"all" else max(1, joined))
            return Reader(first, Seq(int(seq)), Seq(int(stored or 0)))
        else:
            raise Unavailable(f"chat {chat}: could not be opened, try again")
        raise NotFound(NOT_A_MEMBER)
