"""Scan of all chats in table `directory`, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from chatserver.config import Warm
from chatserver.domain.ids import ChatId
from chatserver.warm.chats.directory_items import chat_key
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.items import iter_pages
from chatserver.warm.schema.tables import DIRECTORY, DirectoryField


async def iter_chats(
    client: DynamoClient, settings: Warm, part: int = 0, parts: int = 1
) -> AsyncIterator[list[ChatId]]:
    """Yield the chats in part `part` of `parts` of the table, page by page.

    A page covers 1 MB of the table, which is a few thousand chats at most. Chats created during the
    scan may be missing. The scan costs half a read unit per 4 KB of the table.
    """
    request: dict[str, Any] = {
        "TableName": DIRECTORY.name_in(settings),
        "Segment": part,
        "TotalSegments": parts,
        "ProjectionExpression": "#pk",
        "FilterExpression": "begins_with(#pk, :chat) AND attribute_exists(#version)",
        "ExpressionAttributeNames": {"#pk": DirectoryField.PK, "#version": DirectoryField.VERSION},
        "ExpressionAttributeValues": {":chat": {"S": chat_key("")}},
    }
    async for rows in iter_pages(client, "scan", request):
        names = [row[DirectoryField.PK]["S"] for row in rows]
        yield [ChatId(name.removeprefix(chat_key(""))) for name in names]
