"""Fan-out completion: removes completely delivered chats from ``{pN}:undelivered``.

Fan-out is complete when every inbox has the entries and every gateway has been notified. A chat is
removed only after the notifications are sent. With a single server, call order on the connection
guarantees this. In a cluster, gateway streams are on other nodes, so the removal waits until the
notifications are written.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

import structlog

from chatserver.domain.ids import ChatId, Seq
from chatserver.hot.bus.gateway_stream import GatewayStreamWriter
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.scripts import Value, load_script

log = structlog.get_logger()


class UndeliveredChats:
    """Removes completely delivered chats from ``{pN}:undelivered``, batched per event-loop tick."""

    def __init__(self, hot: HotClient, gateway_stream_writer: GatewayStreamWriter) -> None:
        self._hot = hot
        self._gateway_stream_writer = gateway_stream_writer
        self._soon: dict[ChatId, Seq] = {}

    def finish_soon(self, chat: ChatId, upto: Seq) -> None:
        """Remove a chat from ``{pN}:undelivered`` after this tick's records have been sent.

        A failure is logged; worker `repair` then removes the chat.
        """
        if not self._soon:
            loop = asyncio.get_running_loop()
            # Gateway stream records are sent in the next event loop iteration. They must be sent
            # first, so flush in the iteration after it.
            loop.call_soon(loop.call_soon, self._flush)
        self._soon[chat] = upto

    def _flush(self) -> None:
        soon, self._soon = self._soon, {}
        if self._hot.is_ordered:
            self._send(soon)
        else:
            self._gateway_stream_writer.notify_when_written(functools.partial(self._send, soon))

    def _send(self, done: dict[ChatId, Seq], is_written: bool = True) -> None:
        if not is_written:
            log.warning("undelivered.deferred_to_repair", reason="records_lost")
            return
        script = load_script("finish_fan_outs")
        for keys, args in self._build_calls(list(done.items())):
            self._hot.send(_log_failure, "EVALSHA", script.sha, len(keys), *keys, *args)

    async def finish(self, done: Sequence[tuple[ChatId, Seq]]) -> None:
        """Remove chats after their records have been sent. A chat with newer commits is kept.

        Raises:
            Unavailable: Redis does not respond, or some records for gateway streams were not
                written. Worker `repair` then delivers the messages.
        """
        if not self._hot.is_ordered:
            await self._gateway_stream_writer.wait_written()
        script = load_script("finish_fan_outs")
        for keys, args in self._build_calls(done):
            await self._hot.call("EVAL", script.source, len(keys), *keys, *args)

    def _build_calls(
        self, done: Sequence[tuple[ChatId, Seq]]
    ) -> list[tuple[list[Value], list[Value]]]:
        keys, script = self._hot.keys, load_script("finish_fan_outs")
        groups = keys.group_by_partition(done, lambda item: item[0])
        return [
            script.bind(
                keys.of(partition, *script.keys),
                items=[
                    {"chat": keys.chat(chat), "chat_id": chat, "upto": upto} for chat, upto in group
                ],
            )
            for partition, group in groups.items()
        ]


def _log_failure(reply: Reply) -> None:
    if isinstance(reply, Exception):
        log.warning("undelivered.deferred_to_repair", error=str(reply))
