"""Encrypted attributes: encrypted in every request to DynamoDB, decrypted in every response.

Repositories therefore work with plain items, and cannot forget to encrypt. An encrypted attribute
has type B instead of S (`chatserver.encryption.value_cipher`). It is bound to its context: table,
partition key, sort key and attribute. Empty strings are not encrypted, and neither are items that
were written before encryption was turned on.

An item with a value that cannot be decrypted is returned with its encrypted attributes, which every
repository rejects. If the data key for a message's body has been deleted, the item is returned as a
deleted message with attribute `shredded`. In other tables, an attribute whose data key has been
deleted is returned as an empty string.

Values that a condition compares with an encrypted attribute are encrypted too. In the same context,
equal strings have equal encrypted values, unless they were encrypted with different data keys.
Filters on encrypted attributes are not supported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from chatserver.config import Warm
from chatserver.domain.write_sharding import get_partition_chat
from chatserver.encryption.value_cipher import DataKey, EncryptionContext, ValueCipher
from chatserver.errors import CorruptData
from chatserver.telemetry import metrics
from chatserver.warm.dynamo.conditions import decode_bytes
from chatserver.warm.dynamo.expressions import UnknownForm, find_comparisons
from chatserver.warm.schema.tables import (
    CHAT_SESSION,
    DIRECTORY,
    MESSAGES,
    SOCIAL,
    DirectoryField,
    MessageField,
    SessionField,
    SocialField,
    TableSchema,
)

Item = dict[str, dict[str, Any]]  # the client imports this module

log = structlog.get_logger()

# Digests of a body are encrypted too: otherwise an attacker could confirm a guess at a short body.
FIELDS: Final[dict[TableSchema, frozenset[str]]] = {
    MESSAGES: frozenset(
        {
            MessageField.BODY,
            MessageField.BODY_SHA256,
            MessageField.SUM,
            MessageField.ATTACHMENTS,
        }
    ),
    DIRECTORY: frozenset({DirectoryField.TEXT, DirectoryField.FILE_NAME}),
    SOCIAL: frozenset({SocialField.CONTENT}),
    CHAT_SESSION: frozenset({SessionField.ENTRIES}),
}
_OF_BODY: Final = frozenset(
    {
        MessageField.BODY,
        MessageField.BODY_SHA256,
        MessageField.BODY_BYTES,
        MessageField.SUM,
        MessageField.ATTACHMENTS,
    }
)
_ONE_ITEM: Final = frozenset({"delete_item", "put_item", "update_item"})
_READS: Final = frozenset({"get_item", "query", "scan"})
_YIELD_ITEMS: Final = 64  # number of items decrypted before yielding to the event loop


class EncryptedFields:
    """Encrypts requests, and decrypts responses, of one tenant."""

    def __init__(self, cipher: ValueCipher, settings: Warm) -> None:
        self.cipher = cipher
        self._tables = {table.name_in(settings): table for table in FIELDS}

    # Requests.

    async def encrypt_request(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request with encrypted attributes. Keys have no tenant prefix yet.

        Raises:
            Unavailable: the data key is currently unavailable.
        """
        if operation == "batch_write_item":
            return await self._encrypt_batch(request)
        if operation in _ONE_ITEM:
            if not self._has_values(request):
                return request
            return self._encrypt(request, await self.cipher.get_current())
        if operation == "transact_write_items":
            actions = request["TransactItems"]
            if not any(
                self._has_values(action_request)
                for action in actions
                for action_request in action.values()
            ):
                return request
            key = await self.cipher.get_current()
            encrypted = [
                {
                    kind: self._encrypt(action_request, key)
                    for kind, action_request in action.items()
                }
                for action in actions
            ]
            return {**request, "TransactItems": encrypted}
        return request

    async def _encrypt_batch(self, request: dict[str, Any]) -> dict[str, Any]:
        request_items = request["RequestItems"]
        mine = [name for name in request_items if name in self._tables]
        puts = [
            write["PutRequest"]["Item"]
            for name in mine
            for write in request_items[name]
            if "PutRequest" in write
        ]
        if not any(_is_plain(item, fields) for item in puts for fields in FIELDS.values()):
            return request
        key = await self.cipher.get_current()

        def encrypt(name: str, write: dict[str, Any]) -> dict[str, Any]:
            if "PutRequest" not in write:
                return write
            item = self._encrypt_item(self._tables[name], write["PutRequest"]["Item"], key)
            return {"PutRequest": {"Item": item}}

        encrypted = {name: [encrypt(name, write) for write in request_items[name]] for name in mine}
        return {**request, "RequestItems": {**request_items, **encrypted}}

    def _has_values(self, action_request: Mapping[str, Any]) -> bool:
        table = self._tables.get(action_request["TableName"])
        if table is None:
            return False
        fields = FIELDS[table]
        return _is_plain(action_request.get("Item", {}), fields) or bool(
            find_comparisons(action_request, fields)
        )

    def _encrypt(self, action_request: Mapping[str, Any], key: DataKey) -> dict[str, Any]:
        table = self._tables.get(action_request["TableName"])
        if table is None:
            return dict(action_request)
        sent = dict(action_request)
        if "Item" in sent:
            sent["Item"] = self._encrypt_item(table, sent["Item"], key)
        compared = find_comparisons(action_request, FIELDS[table])
        if compared:
            context = get_context(table, action_request.get("Key") or action_request["Item"])
            values = dict(action_request["ExpressionAttributeValues"])
            for attribute, is_equality, value in compared:
                if not is_equality:
                    raise UnknownForm(f"{attribute}: encrypted values have no order")
                values[value] = _encrypt_value(values[value], (*context, attribute), key)
            sent["ExpressionAttributeValues"] = values
        return sent

    @staticmethod
    def _encrypt_item(table: TableSchema, item: Item, key: DataKey) -> Item:
        encrypted: Item | None = None
        context: EncryptionContext = ()
        for name in FIELDS[table]:
            value = item.get(name)
            if value is None or not (text := value.get("S")):
                continue
            if encrypted is None:
                encrypted, context = dict(item), get_context(table, item)
            encrypted[name] = {"B": key.encrypt((*context, name), text.encode())}
        return item if encrypted is None else encrypted

    # Responses.

    async def decrypt_response(
        self, operation: str, request: Mapping[str, Any], aws_response: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the response with decrypted attributes. `aws_response` has no tenant prefixes.

        Raises:
            Unavailable: a data key is currently unavailable.
        """
        if operation == "batch_get_item":
            items_by_table = {
                name: await self.decrypt(name, items)
                for name, items in aws_response.get("Responses", {}).items()
            }
            return {**aws_response, "Responses": items_by_table}
        if operation == "transact_get_items":
            tables = [action["Get"]["TableName"] for action in request["TransactItems"]]
            pairs = zip(tables, aws_response["Responses"], strict=True)
            responses = [
                {**response, "Item": (await self.decrypt(name, [response["Item"]]))[0]}
                if response.get("Item")
                else response
                for name, response in pairs
            ]
            return {**aws_response, "Responses": responses}
        if operation not in _READS and operation not in _ONE_ITEM:
            return aws_response
        name = request["TableName"]
        if name not in self._tables:
            return aws_response
        decrypted = dict(aws_response)
        if "Items" in aws_response:
            decrypted["Items"] = await self.decrypt(name, aws_response["Items"])
        for part in ("Item", "Attributes"):
            if aws_response.get(part):
                item = {**request.get("Key", {}), **aws_response[part]}
                decrypted[part] = (await self.decrypt(name, [item]))[0]
        return decrypted

    async def decrypt_stored(
        self, operation: str, request: Mapping[str, Any], stored: list[Item | None]
    ) -> list[Item | None]:
        """Decrypt the existing items that a failed write returned, one per action."""
        if operation in _ONE_ITEM:
            names = [request["TableName"]]
        elif operation == "transact_write_items":
            actions = request["TransactItems"]
            names = [
                action_request["TableName"]
                for action in actions
                for action_request in action.values()
            ]
        else:
            return stored
        return [
            item and (await self.decrypt(name, [item]))[0]
            for name, item in zip(names, stored, strict=True)
        ]

    async def decrypt(self, name: str, items: Sequence[Item]) -> list[Item]:
        """Decrypt items of a table; see `decrypt_response`."""
        table = self._tables.get(name)
        if table is None:
            return list(items)
        fields, decrypted = FIELDS[table], list[Item]()
        for number, item in enumerate(items):
            mine = [field for field in fields if "B" in item.get(field, ())]
            decrypted.append(await self._decrypt_item(table, item, mine) if mine else item)
            if number % _YIELD_ITEMS == _YIELD_ITEMS - 1:
                await asyncio.sleep(0)
        return decrypted

    async def _decrypt_item(self, table: TableSchema, item: Item, fields: Sequence[str]) -> Item:
        try:
            return await self._decrypt_fields(table, item, fields)
        except CorruptData as exc:
            log.error("encryption.value_refused", table=table.name, error=exc.message)
            metrics.ENCRYPTION_REFUSED.inc()
            return item

    async def _decrypt_fields(self, table: TableSchema, item: Item, fields: Sequence[str]) -> Item:
        context, plain = get_context(table, item), dict(item)
        for name in fields:
            data = decode_bytes(item[name])
            key = await self.cipher.find_for(data)
            if key is not None:
                text = key.decrypt((*context, name), data)
                plain[name] = {"S": text.decode()}
            elif table is not MESSAGES:
                plain[name] = {"S": ""}
            elif name == MessageField.SUM:
                del plain[name]
            else:
                return _shredded(item)
        return plain


async def reencrypt_fields(cipher: ValueCipher, table: TableSchema, item: Item) -> Item:
    """Return new values for the item's attributes that were not encrypted with the current key.

    `item` has the stored values, without a tenant prefix. Attributes whose key has been deleted
    are omitted.

    Raises:
        CorruptData: a value cannot be decrypted.
        Unavailable: a data key is currently unavailable.
    """
    key = await cipher.get_current()
    context, changed = get_context(table, item), Item()
    for name in FIELDS[table] & item.keys():
        value = item[name]
        if text := value.get("S"):
            plain = text.encode()
        elif "B" in value:
            data = decode_bytes(value)
            old = await cipher.find_for(data)
            if old is None or old.version == key.version:
                continue
            plain = old.decrypt((*context, name), data)
        else:
            continue
        changed[name] = {"B": key.encrypt((*context, name), plain)}
    return changed


def get_context(table: TableSchema, item: Mapping[str, Any]) -> EncryptionContext:
    """Return the table and key that an item's values are bound to, without the shard number."""
    try:
        partition = item[table.key.partition]["S"]
        if table is MESSAGES:
            partition = get_partition_chat(partition)
        sort = table.key.sort
        return (table.name, partition, "" if sort is None else next(iter(item[sort].values())))
    except KeyError as exc:
        raise CorruptData(
            f"table {table.name}: an encrypted item lacks the attribute {exc}"
        ) from exc


def _is_plain(item: Mapping[str, Any], fields: frozenset[str]) -> bool:
    for name in fields:  # not `any(...)`: this runs on every write, and a generator is slower
        value = item.get(name)
        if value is not None and value.get("S"):
            return True
    return False


def _encrypt_value(
    value: Mapping[str, Any], context: EncryptionContext, key: DataKey
) -> dict[str, Any]:
    text: str | None = value.get("S")
    return {"B": key.encrypt(context, text.encode())} if text else dict(value)


def _shredded(item: Item) -> Item:
    """Return `item` as a deleted message, because its body can no longer be decrypted."""
    remaining = {name: value for name, value in item.items() if name not in _OF_BODY}
    return remaining | {
        MessageField.BODY: {"S": ""},
        MessageField.DELETED: {"BOOL": True},
        MessageField.SHREDDED: {"BOOL": True},
    }
