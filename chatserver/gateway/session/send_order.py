"""Send order after refusals: no send overtakes an earlier refused send. No I/O.

Clients pipeline sends. If a send is refused by a session limit, later sends to the same chat are
refused too, until the refused sends are retried in order. Messages are thus committed in the order
in which they were first sent. If the refused sends are not retried within `RESEND_S` after
`retry_after_ms`, later sends are accepted again.
"""

from __future__ import annotations

from chatserver.errors import RateLimited

RESEND_S = 2.0
REFUSED_MAX = 1024  # maximum number of refused sends tracked per session


class _Refused:
    """The refused sends of a chat. `numbers` maps refs to arrival numbers, in ascending order."""

    __slots__ = ("numbers", "retry_at")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.retry_at = 0.0


class SendOrder:
    """Send order of one session.

    Held frames and refused sends get an arrival number; a lower number arrived earlier.
    """

    __slots__ = ("_arrived", "_count", "refused")

    def __init__(self) -> None:
        self.refused: dict[str, _Refused] = {}  # chat → its refused sends
        self._arrived = self._count = 0

    def next_number(self) -> int:
        self._arrived += 1
        return self._arrived

    def check(self, chat: str, ref: str, number: int | None, now: float) -> None:
        """Check that a send overtakes no refused send. `number` is None if the send did not wait.

        Raises:
            RateLimited: an earlier send to the chat was refused and has not been retried.
        """
        refused = self.refused.get(chat)
        if refused is None:
            return
        first, first_number = next(iter(refused.numbers.items()))
        if ref == first or (number is not None and number < first_number):
            return
        if now >= refused.retry_at + RESEND_S:
            self._count -= len(self.refused.pop(chat).numbers)
            return
        self._add(refused, ref, number)
        wait_ms = max(100, int((refused.retry_at - now) * 1000))
        reason = f"an earlier send was refused; retry {first} first, then this send"
        raise RateLimited(reason, retry_after_ms=wait_ms)

    def refuse(self, chat: str, ref: str, number: int | None, retry_at: float) -> None:
        """Record a refused send; later sends to the chat must wait for its retry."""
        refusal = self.refused.get(chat)
        if refusal is None:
            if self._count >= REFUSED_MAX:
                return
            refusal = self.refused[chat] = _Refused()
        refusal.retry_at = max(refusal.retry_at, retry_at)
        self._add(refusal, ref, number)

    def _add(self, refusal: _Refused, ref: str, number: int | None) -> None:
        if ref in refusal.numbers or self._count >= REFUSED_MAX:
            return
        self._count += 1
        number = self.next_number() if number is None else number
        is_last = number > next(reversed(refusal.numbers.values()), 0)
        refusal.numbers[ref] = number
        if not is_last:
            refusal.numbers = dict(sorted(refusal.numbers.items(), key=lambda item: item[1]))

    def remove(self, chat: str, ref: str, now: float) -> None:
        """Remove a refused send whose retry was accepted or permanently refused."""
        refusal = self.refused.get(chat)
        if refusal is None or refusal.numbers.pop(ref, None) is None:
            return
        self._count -= 1
        refusal.retry_at = max(refusal.retry_at, now)
        if not refusal.numbers:
            del self.refused[chat]
