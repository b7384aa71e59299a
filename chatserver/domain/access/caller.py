"""The caller whose request the current task processes.

`CALLER` is a context variable, which tasks inherit. Set it only in the request's own task:
connection callbacks share one context, so a value set there would apply to every later request.
"""

from __future__ import annotations

import contextvars
import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class RequestCaller:
    """A user, or the empty string, and the networks of a new account (else empty).

    `networks`: as returned by `client_addresses.get_networks`. `is_host`: the host application acts
    for the user, so limits on new chats do not apply.
    """

    user: str = ""
    networks: tuple[str, ...] = ()
    is_host: bool = False

    @property
    def queue_key(self) -> str:
        """The key by which the caller's requests are queued round-robin.

        Accounts are free, so all new accounts of a network (IPv4 /24, IPv6 /48) share a key. No
        user id contains "/".
        """
        return f"network/{self.networks[-1]}" if self.networks else self.user


def is_network_key(queue_key: str) -> bool:
    """Return whether a `RequestCaller.queue_key` is that of a network of new accounts."""
    return queue_key.startswith("network/")


_NOBODY: Final = RequestCaller()
CALLER: Final[contextvars.ContextVar[RequestCaller]] = contextvars.ContextVar(
    "caller", default=_NOBODY
)
