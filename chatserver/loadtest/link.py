"""A device's connection, from the upgrade to its end."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, Self

import msgspec

from chatserver.loadtest import heard, wire
from chatserver.loadtest.connection import Connection
from chatserver.protocol.frames import SUBPROTOCOL

HELLO_S: Final = 15.0


class Refused(Exception):
    """The server answered `hello` with something else than `welcome`."""

    def __init__(self, text: str, *, is_temporary: bool, retry_after_s: float | None) -> None:
        super().__init__(text)
        self.is_temporary = is_temporary
        self.retry_after_s = retry_after_s


class Owner(Protocol):
    """Whose connection it is."""

    user: str

    def take(self, frame: heard.Heard) -> None: ...

    def take_unreadable(self, data: bytes) -> None: ...

    def link_ended(self, link: Link) -> None: ...


class Link(Connection):
    """Gives its owner each frame that comes after the welcome, and tells him of the end."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner.user)
        self._owner = owner
        self._early: list[heard.Heard] = []  # came with the welcome
        self._is_begun = self._is_aborted = self._is_ended = False
        self._welcome: asyncio.Future[heard.Welcome] | None = None
        self._bye: heard.Bye | None = None

    @classmethod
    async def open(
        cls, owner: Owner, address: wire.Address, hello: dict[str, Any]
    ) -> tuple[Self, heard.Welcome]:
        """Connect and say hello. The connection is closed if that fails.

        Raises:
            Refused: the server does not want this user, or not now.
            BadHandshake, OSError, TimeoutError: it is not there, or no gateway.
        """
        link = cls(owner)
        try:
            await link.open_to(address, SUBPROTOCOL)
            link._welcome = asyncio.get_running_loop().create_future()
            link.transport.write(wire.client_frame(heard.encode(hello)))
            return link, await asyncio.wait_for(link._welcome, HELLO_S)
        except BaseException:
            link.abort()
            raise

    def begin(self) -> None:
        """Give the owner what has come already; from now on he gets frames as they come."""
        self._is_begun = True
        early, self._early = self._early, []
        for frame in early:
            self._owner.take(frame)
        if self._is_ended:
            self._owner.link_ended(self)

    def abort(self) -> None:
        """End the connection without a word."""
        self._is_aborted = self._is_closing = True
        if hasattr(self, "transport"):
            self.transport.abort()

    def read_frames(self, data: bytes) -> int:
        pos, end = 0, len(data)
        while (found := wire.find_payload(data, pos)) is not None and found[1] <= end:
            start, stop = found
            first = data[pos]
            if first == wire.TEXT:
                if self._is_aborted:
                    return end  # nobody hears what was under way
                try:
                    frame = heard.decode(data[start:stop])
                except msgspec.MsgspecError:
                    self._owner.take_unreadable(data[start:stop])
                else:
                    if self._is_begun:
                        self._owner.take(frame)
                    else:
                        self._take_early(frame)
            elif first == wire.PING:
                self.transport.write(wire.client_frame(data[start:stop], wire.PONG))
            elif first == wire.CLOSE:
                self.transport.close()
            pos = stop
        return pos

    def _take_early(self, frame: heard.Heard) -> None:
        welcome = self._welcome
        if welcome is None or welcome.done():
            self._early.append(frame)
        elif isinstance(frame, heard.Welcome):
            welcome.set_result(frame)
        elif isinstance(frame, heard.Refusal):
            wait_s = frame.retry_after_ms / 1000
            text = f"{frame.code}: {frame.message}"
            welcome.set_exception(Refused(text, is_temporary=frame.temporary, retry_after_s=wait_s))
        elif isinstance(frame, heard.Bye):
            self._bye = frame

    def ended(self, failure: ConnectionError, *, is_wanted: bool) -> None:
        bye, self._is_ended = self._bye, True
        if self._welcome is not None and not self._welcome.done():
            if bye is None:
                self._welcome.set_exception(failure)
            else:
                wait_s = None if bye.retry_after_ms is None else bye.retry_after_ms / 1000
                self._welcome.set_exception(
                    Refused(bye.reason, is_temporary=bye.code < 3500, retry_after_s=wait_s)
                )
        if self._is_begun and not is_wanted:
            self._owner.link_ended(self)
