"""Ports: interfaces of the core that installed features implement.

A feature registers a function under the port's name (`Feature.ports`, `Feature.gateway_ports`). The
function takes the container and returns the implementation. Without such a feature, the core uses
the port's default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest
from chatserver.protocol import frames
from chatserver.service.messaging.message_sender import SendInterceptor

T = TypeVar("T")

CheckEdit = Callable[[UserId, frames.Edit], Awaitable[frames.Edit]]
CheckSend = Callable[[UserId, frames.Send], Awaitable[None]]
ResolveFiles = Callable[[UserId, ChatId, Sequence[str]], Awaitable[Sequence[frames.Attachment]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Port(Generic[T]):
    """An interface of type `T`. `default` is used if no feature implements it."""

    name: str
    default: T


async def _refuse_files(
    sender: UserId, chat: ChatId, ids: Sequence[str]
) -> Sequence[frames.Attachment]:
    raise BadRequest("attachments: this server does not accept files")


async def ignore(*_: object) -> None:
    """Do nothing; the default of several ports."""
    return


# Every process that accepts messages uses the following ports.
SEND_INTERCEPTOR: Port[SendInterceptor | None] = Port("send_interceptor", None)
CHECK_EDIT: Port[CheckEdit | None] = Port("check_edit", None)
CHECK_COMPANION_SEND: Port[CheckSend] = Port("check_companion_send", ignore)
RESOLVE_FILES: Port[ResolveFiles] = Port("resolve_files", _refuse_files)
