"""Error hierarchy.

::

    ChatError
    ├── ClientError            the caller can fix it                    logged at INFO
    │   ├── BadRequest         a field is missing, malformed or out of range
    │   ├── TooLarge           the input exceeds a size limit
    │   ├── Unauthenticated    no valid token
    │   │   └── UnknownKey     signed with a key that this process does not have
    │   ├── Forbidden          authenticated, but not allowed
    │   │   └── Banned         the user is banned from the server
    │   ├── NotFound           absent, or not visible to the caller
    │   ├── Conflict           the name or reference is already in use
    │   │   └── LostRace       another request changed it concurrently; a retry may succeed
    │   └── RateLimited        too many requests; retry after `retry_after_ms`
    ├── Unavailable            a retry may succeed                      logged at WARNING
    │   └── Overloaded         a limit is reached; slow down
    ├── CorruptData            stored data breaks an invariant          pages an operator
    └── ConfigError            the process cannot start

`code` is the error code on the wire; `chatserver.protocol.error_codes` maps it to an HTTP status
and a close code. Adapters translate library errors with ``raise … from exc``, so no redis or
botocore error crosses a package boundary.

`message` is for logs and commands, and may quote another server and its address. Clients and
``/readyz`` receive `public_message`.
"""

from __future__ import annotations

from typing import Final

# Texts for clients, for errors whose own text quotes a server.
REDIS_DOWN: Final = "Redis is unavailable; try again"
REDIS_REFUSES_WRITES: Final = "Redis does not accept writes; try again"
DYNAMODB_DOWN: Final = "DynamoDB is unavailable; try again"
S3_DOWN: Final = "S3 is unavailable; try again"
KEYS_DOWN: Final = "the encryption keys are unavailable; try again"
SEARCH_DOWN: Final = "search is unavailable; try again"
MODEL_DOWN: Final = "the AI model is unavailable; try again"
SERVER_DOWN: Final = "a server that this request needs is unavailable; try again"


class ChatError(Exception):
    """Base class of all expected errors."""

    code = "internal"
    temporary = False
    public = ""  # text for clients; if empty, they receive `message`

    def __init__(self, message: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_ms = retry_after_ms

    @property
    def public_message(self) -> str:
        """The text for clients: it quotes no other server and no address."""
        return self.public or self.message

    @property
    def probe_message(self) -> str:
        """The text for ``/readyz``: which server is down, and where an operator finds the cause."""
        return self.public_message.replace("; try again", "; see the log or `chatserver doctor`")


class ClientError(ChatError):
    """The request is invalid; the caller can fix it."""

    code = "bad_request"


class BadRequest(ClientError):
    """A field is missing, malformed or out of range; the message names the field and the limit."""


class TooLarge(ClientError):
    """The input exceeds a size limit; the message names the limit."""

    code = "too_large"


class Unauthenticated(ClientError):
    """The token is missing or invalid."""

    code = "unauthenticated"


class UnknownKey(Unauthenticated):
    """The token names an unknown key; a refreshed key set may contain it."""


class Forbidden(ClientError):
    """The caller is authenticated but not allowed to do this."""

    code = "forbidden"


class Banned(Forbidden):
    """The user is banned from the server; a new token does not help."""


class NotFound(ClientError):
    """The resource does not exist or is not visible to the caller."""

    code = "not_found"


class Conflict(ClientError):
    """The name or reference is already in use for something else."""

    code = "conflict"


class LostRace(Conflict):
    """A concurrent request changed the same resource; a retry may succeed."""

    temporary = True

    def __init__(self, message: str, *, retry_after_ms: int | None = 100) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)


class RateLimited(ClientError):
    """Too many requests; retry after `retry_after_ms`."""

    code = "rate_limited"
    temporary = True


class Unavailable(ChatError):
    """Redis, DynamoDB or S3 is down or too slow; a retry may succeed.

    After a send, the message may have been committed or not; retry with the same `ref`.
    """

    code = "unavailable"
    temporary = True

    def __init__(
        self, message: str, *, public: str = "", retry_after_ms: int | None = 1000
    ) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)
        if public:
            self.public = public


class Overloaded(Unavailable):
    """A queue or Redis has reached its limit; nothing was accepted."""

    code = "overloaded"


class CorruptData(ChatError):
    """Stored data breaks an invariant. Never retried, never hidden."""

    public = "internal error; the operator finds the cause in the server log"


class ConfigError(ChatError):
    """The process cannot start; `problems` lists every problem found."""

    public = "the server is not configured; see its log or run `chatserver doctor`"

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


# The error class for each code that a client or a gateway receives.
ERRORS_BY_CODE: dict[str, type[ChatError]] = {
    error.code: error
    for error in (
        BadRequest,
        TooLarge,
        Unauthenticated,
        Forbidden,
        NotFound,
        Conflict,
        RateLimited,
        Unavailable,
        Overloaded,
    )
}
