"""Every error the product raises, in one tree.

::

    ChatError
    ├── ClientError            the caller mends it                      logged at INFO
    │   ├── BadRequest         a field is missing, malformed or out of its bound
    │   ├── TooLarge           the input exceeds a size limit
    │   ├── Unauthenticated    no valid token
    │   │   └── UnknownKey     signed with a key that is not known here, yet
    │   ├── Forbidden          known, but not allowed
    │   │   └── Banned         the user may do nothing at all
    │   ├── NotFound           absent, or not visible to the caller
    │   ├── Conflict           the same name stands for something else
    │   │   └── LostRace       another request changed it at the same moment; the same call may work
    │   └── RateLimited        too many; `retry_after_ms` says when again
    ├── Unavailable            the same call may work later             logged at WARNING
    │   └── Overloaded         a bound is reached; slow down
    ├── CorruptData            stored data breaks an invariant          pages someone
    └── ConfigError            the process cannot start

`code` is the word on the wire; `chatserver.protocol.codes` maps it to HTTP status and close code.
Adapters translate foreign errors at their edge with ``raise … from exc``: nothing of redis or
botocore crosses a package border.
"""

from __future__ import annotations


class ChatError(Exception):
    """Root of everything raised on purpose."""

    code = "internal"
    temporary = False

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_ms = retry_after_ms


class ClientError(ChatError):
    """The caller sent something that the caller can mend."""

    code = "bad_request"


class BadRequest(ClientError):
    """A field is missing, malformed or out of its bound; the message names field and limit."""


class TooLarge(ClientError):
    """The input exceeds a size limit; the message names it."""

    code = "too_large"


class Unauthenticated(ClientError):
    """No token, or one that does not hold."""

    code = "unauthenticated"


class UnknownKey(Unauthenticated):
    """The token names a key that is not known here; a key set fetched anew may have it."""


class Forbidden(ClientError):
    """The caller is known but may not do this."""

    code = "forbidden"


class Banned(Forbidden):
    """The user may do nothing at all, and no token helps."""


class NotFound(ClientError):
    """There is no such thing, or the caller may not know that there is."""

    code = "not_found"


class Conflict(ClientError):
    """The name or reference already stands for something else."""

    code = "conflict"


class LostRace(Conflict):
    """Another request changed the same thing at the same moment; the same call may work later."""

    temporary = True

    def __init__(self, message: str, *, retry_after_ms: int | None = 100) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)


class RateLimited(ClientError):
    """Too many requests; try again after `retry_after_ms`."""

    code = "rate_limited"
    temporary = True


class Unavailable(ChatError):
    """A tier is down or too slow; the same call may work later.

    For a send this is the third outcome: it may or may not have happened, and the same `ref` tells.
    """

    code = "unavailable"
    temporary = True

    def __init__(self, message: str, *, retry_after_ms: int | None = 1000) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)


class Overloaded(Unavailable):
    """A queue or store reached its bound; nothing was taken."""

    code = "overloaded"


class CorruptData(ChatError):
    """Stored data breaks an invariant. Never retried, never hidden."""


class ConfigError(ChatError):
    """The process cannot start; `problems` lists everything that is wrong at once."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
