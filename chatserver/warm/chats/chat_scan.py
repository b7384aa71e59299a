"""Scan of all chats in table `directory`, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from chatserver.domain.ids import ChatId
from chatserver.warm.chats.directory_items import chat_key
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField

IS_CHAT: Final = (
    Attr(DirectoryField.PK).begins_with(chat_key("")) & Attr(DirectoryField.VERSION).exists
)


async def iter_chats(
    client: DynamoClient, part: int = 0, parts: int = 1
) -> AsyncIterator[list[ChatId]]:
    """Yield the chats in part `part` of `parts` of the table, page by page.

    A page covers 1 MB of the table, which is a few thousand chats at most. Chats created during the
    scan may be missing. The scan costs half a read unit per 4 KB of the table.
    """
    table = Table(client, DIRECTORY)
    async for rows in table.iter_scan(part, parts, where=IS_CHAT, only=(DirectoryField.PK,)):
        yield list(map(get_scanned_chat, rows))


def get_scanned_chat(row: Item) -> ChatId:
    return ChatId(row[DirectoryField.PK]["S"].removeprefix(chat_key("")))
