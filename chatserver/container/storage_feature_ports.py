"""Ports of the API and the workers; see `chatserver.container.feature_ports`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from chatserver.container.feature_ports import Port, ignore
from chatserver.domain.ids import ChatId, UserId
from chatserver.hot.chats.persist_backlog import BacklogEntry
from chatserver.protocol import frames
from chatserver.service.access.revocation import PushDevices
from chatserver.service.membership.group_pictures import NO_GROUP_PICTURES, GroupPictures
from chatserver.service.membership.invitations import FollowGraph
from chatserver.service.moderation.blocks_and_reports import PublishEvent

ReleaseFiles = Callable[[int, Sequence[frames.Attachment]], Awaitable[None]]
ReleasePin = Callable[[str, int, int], Awaitable[None]]
RecordFiles = Callable[[frames.Message], Awaitable[None]]
ReviveSession = Callable[[ChatId], Awaitable[bool]]
RecordPending = Callable[[int, Sequence[BacklogEntry]], Awaitable[None]]
PublishEntries = Callable[[int, Sequence[frames.Message]], Awaitable[None]]
LoadFile = Callable[[str], Awaitable[bytes]]
RewriteExported = Callable[[Collection[ChatId]], Awaitable[int]]
EraseIndexed = Callable[[UserId], Awaitable[int]]


class NoFollows:
    """An empty follow graph, used if the `social` feature is not installed."""

    async def find_followers(self, user: str, others: Collection[str]) -> set[str]:
        return set()

    async def remove_between(self, user: str, other: str) -> None:
        return None


async def _find_no_file(file: str) -> bytes:
    return b""


async def _rewrite_nothing(chats: Collection[ChatId]) -> int:
    return 0


async def _erase_nothing(user: UserId) -> int:
    return 0


FOLLOW_GRAPH: Port[FollowGraph] = Port("follow_graph", NoFollows())
PUSH_DEVICES: Port[PushDevices | None] = Port("push_devices", None)
PUBLISH_EVENT: Port[PublishEvent] = Port("publish_event", ignore)
PUBLISH_ENTRIES: Port[PublishEntries] = Port("publish_entries", ignore)
RECORD_FILES: Port[RecordFiles] = Port("record_files", ignore)
RELEASE_FILES: Port[ReleaseFiles] = Port("release_files", ignore)
# Removes a deleted message from the chat's pinned messages; called with chat, seq and ts.
RELEASE_PIN: Port[ReleasePin] = Port("release_pin", ignore)
# Records messages that a companion must respond to. The arguments are a Redis partition and
# entries of its backlog.
RECORD_PENDING: Port[RecordPending] = Port("record_pending", ignore)
# The rpc worker uses these ports for calls from gateways. `LOAD_FILE` returns the encoded metadata
# of an attachment, or b"".
LOAD_FILE: Port[LoadFile] = Port("load_file", _find_no_file)
# After the erasure of a user, rewrites the Parquet files of the given chats; returns the number of
# files. Raises `Unavailable` unless all these files match DynamoDB and S3.
REWRITE_EXPORTED: Port[RewriteExported] = Port("rewrite_exported", _rewrite_nothing)
# Removes an erased user's messages from the search index; returns the number of the index's
# partitions. Raises `Unavailable` if a file of the index could still contain the messages.
ERASE_INDEXED: Port[EraseIndexed] = Port("erase_indexed", _erase_nothing)
GROUP_PICTURES: Port[GroupPictures] = Port("group_pictures", NO_GROUP_PICTURES)
REVIVE_SESSION: Port[ReviveSession | None] = Port("revive_session", None)
