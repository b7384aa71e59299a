"""The order of a session's sends across refusals: none overtakes a refused one. No I/O.

A bound of the session can refuse a send before it is committed. By then the client may have written
more. Those to the same chat are refused, too, until the refused ones come again, in order: so a
client may pipeline as it likes, and its messages are committed in the order in which it first sent
them. A client that gives up a refused send waits `RESEND_S` longer than the refusal's
`retry_after_ms`.
"""

from __future__ import annotations

from chatserver.errors import RateLimited

RESEND_S = 2.0
REFUSED_MAX = 1024  # refused sends of a session whose order is kept


class _Refused:
    """The refused sends of a chat, by ref in the order of their arrival numbers."""

    __slots__ = ("numbers", "retry_at")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.retry_at = 0.0


class SendOrder:
    """Of one session. A send that waits or is refused has an arrival number."""

    __slots__ = ("_arrived", "_count", "refused")

    def __init__(self) -> None:
        self.refused: dict[str, _Refused] = {}  # chat → its refused sends
        self._arrived = self._count = 0

    def next_number(self) -> int:
        """Return the arrival number of a frame that has come now."""
        self._arrived += 1
        return self._arrived

    def check(self, chat: str, ref: str, number: int | None, now: float) -> None:
        """Let a send pass that overtakes nothing; `number`: when it came, if not just now.

        Raises:
            RateLimited: an earlier send to the chat was refused and has not come again.
        """
        found = self.refused.get(chat)
        if found is None:
            return
        first, first_number = next(iter(found.numbers.items()))
        if ref == first or (number is not None and number < first_number):
            return
        if now >= found.retry_at + RESEND_S:
            self._count -= len(self.refused.pop(chat).numbers)
            return
        self._add(found, ref, number)
        wait_ms = max(100, int((found.retry_at - now) * 1000))
        why = f"an earlier send was refused: repeat {first} first, and then this one"
        raise RateLimited(why, retry_after_ms=wait_ms)

    def refuse(self, chat: str, ref: str, number: int | None, retry_at: float) -> None:
        """Note a refused send; what came after it has to wait for it."""
        found = self.refused.get(chat)
        if found is None:
            if self._count >= REFUSED_MAX:
                return
            found = self.refused[chat] = _Refused()
        found.retry_at = max(found.retry_at, retry_at)
        self._add(found, ref, number)

    def _add(self, found: _Refused, ref: str, number: int | None) -> None:
        if ref in found.numbers or self._count >= REFUSED_MAX:
            return
        self._count += 1
        number = self.next_number() if number is None else number
        is_last = number > next(reversed(found.numbers.values()), 0)
        found.numbers[ref] = number
        if not is_last:
            found.numbers = dict(sorted(found.numbers.items(), key=lambda each: each[1]))

    def settle(self, chat: str, ref: str, now: float) -> None:
        """Forget a refused send that came again and was taken, or refused for good."""
        found = self.refused.get(chat)
        if found is None or found.numbers.pop(ref, None) is None:
            return
        self._count -= 1
        found.retry_at = max(found.retry_at, now)
        if not found.numbers:
            del self.refused[chat]
