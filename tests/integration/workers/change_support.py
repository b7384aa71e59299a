"""Helper of the change tests: a group that uses only the Redis scripts."""

from __future__ import annotations

from typing import Any

from chatserver.domain.ids import UserId
from chatserver.domain.messages import REF_TTL_S, format_name, reference_key
from chatserver.protocol import codec, frames
from tests.integration.hot.support import ALICE, BOB, CAROL, CHAT, EPOCH, Scripts, Sending


class Chat:
    """A group of alice, bob and carol; carol is the owner."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        scripts.open_chat(ALICE, BOB, CAROL)
        self.set_role(CAROL, "owner", 0)
        self._count = 0

    def set_role(self, user: UserId, role: str, joined: int) -> None:
        """Write a membership."""
        key = self.scripts.keys.members(CHAT)
        self.scripts.redis.hset(key, user, f"{role}:{joined}")

    def send(self, sender: UserId = ALICE, body: str = "hello", **more: Any) -> int:
        """Commit a message; return its seq."""
        self._count += 1
        ref = f"s{self._count}"
        tail = codec.encode_message_tail(CHAT, "M", sender, ref, "text", body, None, **more)
        (answer,) = self.scripts.accept(
            Sending(sender, ref, to=(), gate=self.gate, tail=tail.decode())
        )
        assert answer.seq, answer
        return answer.seq

    @property
    def gate(self) -> str:
        return self.scripts.head()["gate"].removesuffix(":p")

    def commit_change(
        self,
        sender: UserId,
        kind: str,
        target: int,
        body: str = "",
        *,
        ref: str = "",
        base: bytes = b"",
        asked: int = 0,
        reactions_max: int = 3,
        backlog_max: int = 1000,
        epoch: str = EPOCH,
        author: str = "",
        target_ref: str = "",
    ) -> list[Any]:
        """Run the script `commit_change`; return its reply."""
        self._count += 1
        ref = ref or f"a{self._count}"
        reply: list[Any] = self.scripts.run(
            "commit_change",
            {
                "epoch": epoch,
                "gateway": "gw-here",
                "backlog_max": backlog_max,
                "reactions_max": reactions_max,
                "chat_id": CHAT,
                "sender": sender,
                "name": format_name("M2", "d2"),
                "kind": kind,
                "target": target,
                "body": body,
                "tail": codec.encode_entry_tail(CHAT, "M2", sender, ref, kind, body, target),
                "base": base,
                "asked": asked,
                "author": author,
                "ref": reference_key(sender, ref),
                "readable": "",
                "target_ref": target_ref,
            },
        )
        return reply

    def get_overlay(self, seq: int) -> frames.Message | None:
        """Return the message in the overlay."""
        value = self.scripts.redis.hget(self.scripts.keys.over(CHAT), seq)
        return codec.decode_message(value) if value else None

    def backlog(self) -> list[tuple[bytes, bytes]]:
        """Return all committed entries as (position, bytes)."""
        found = []
        for _, fields in self.scripts.redis.xrange(self.scripts.keys.backlog(0)):
            found += [(name, value) for name, value in fields.items() if b":" in name]
        return found

    def trim(self, upto: int, log_max: int) -> None:
        """Mark the chat as persisted up to a seq and trim it."""
        args = {"log_max": log_max, "ref_ttl_s": REF_TTL_S, "epoch": EPOCH}
        self.scripts.run("trim_persisted", args, [{"upto": upto, "dead": ""}])
