"""Takes chats off ``{pN}:undelivered`` once every inbox is served and every gateway told.

Order: behind the mail that was posted before, so that a process that dies between the two leaves
the chat listed. On one connection the order of the calls does that; mailboxes of a cluster are on
other nodes, and then their answers are waited for.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

import structlog

from chatserver.domain.ids import ChatId, Seq
from chatserver.hot.client import HotClient
from chatserver.hot.mailbox import Postman
from chatserver.hot.scripts import Value, load_script
from chatserver.hot.wire import Reply

log = structlog.get_logger()


class Settling:
    """Settles chats, those of one loop tick together."""

    def __init__(self, hot: HotClient, postman: Postman) -> None:
        self._hot = hot
        self._postman = postman
        self._soon: dict[ChatId, Seq] = {}

    def settle_soon(self, chat: ChatId, upto: Seq) -> None:
        """Settle at the end of this tick, after the mail that is posted in it.

        A failure is only logged: then `workers.repair` finds the chat and settles it.
        """
        if not self._soon:
            loop = asyncio.get_running_loop()
            # Two ticks on: mail is flushed one tick on, and must be on the wire before.
            loop.call_soon(loop.call_soon, self._flush)
        self._soon[chat] = upto

    def _flush(self) -> None:
        soon, self._soon = self._soon, {}
        if self._hot.is_ordered:
            self._send(soon)
        else:
            self._postman.when_posted(functools.partial(self._send, soon))

    def _send(self, done: dict[ChatId, Seq], is_posted: bool = True) -> None:
        if not is_posted:
            log.warning("settle.left_to_repair", error="mail was lost")
            return
        script = load_script("settle")
        for keys, args in self._calls(list(done.items())):
            self._hot.send(_log_failure, "EVALSHA", script.sha, len(keys), *keys, *args)

    async def settle(self, done: Sequence[tuple[ChatId, Seq]]) -> None:
        """Settle once the mail is posted. A chat that has moved on since stays listed.

        Raises:
            Unavailable: Redis does not answer, or mail was lost; `workers.repair` finds the chat.
        """
        if not self._hot.is_ordered:
            await self._postman.posted()
        script = load_script("settle")
        for keys, args in self._calls(done):
            await self._hot.call("EVAL", script.source, len(keys), *keys, *args)

    def _calls(self, done: Sequence[tuple[ChatId, Seq]]) -> list[tuple[list[Value], list[Value]]]:
        names, script = self._hot.keys, load_script("settle")
        groups: dict[int, list[tuple[ChatId, Seq]]] = {}
        for chat, upto in done:
            groups.setdefault(names.partition_of(chat), []).append((chat, upto))
        return [
            script.bind(
                {"undelivered": names.undelivered(partition)},
                items=[
                    {"chat": names.chat(chat), "chat_id": chat, "upto": upto}
                    for chat, upto in group
                ],
            )
            for partition, group in groups.items()
        ]


def _log_failure(reply: Reply) -> None:
    if isinstance(reply, Exception):
        log.warning("settle.left_to_repair", error=str(reply))
