"""Password hashes and profiles in the DynamoDB table `directory`. `LoginRows` stores the logins.

| record       | `PK`       | `SK`          | attributes     |
|--------------|------------|---------------|----------------|
| `Credential` | `u#<user>` | `cred#<user>` | `hash changed` |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.access.logins import Login
from chatserver.domain.ids import new_id
from chatserver.errors import Conflict, NotFound, Unavailable
from chatserver.features.accounts.search_words import list_search_words
from chatserver.features.accounts.warm.search_entries import SearchEntries
from chatserver.features.social.warm.profiles import SocialProfiles
from chatserver.features.social.warm.social_items import INFO
from chatserver.warm.chats import directory_items
from chatserver.warm.chats.directory_items import User
from chatserver.warm.chats.logins import LoginRows, Value, encode_login, make_update
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import get_number, get_text
from chatserver.warm.dynamo.items import write_conditionally
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import DirectoryField as Field

PROFILE_TRIES_MAX: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Credential:
    """A user's password hash."""

    user: str
    hash: str
    changed_ms: int

    def encode(self) -> Item:
        # SK repeats the user; otherwise the index `by_member` would have all rows in one partition.
        item = directory_items.row_key(directory_items.user_key(self.user), f"cred#{self.user}")
        item[Field.HASH] = {"S": self.hash}
        item[Field.CHANGED] = {"N": str(self.changed_ms)}
        return item


class AccountRows(LoginRows):
    """Reads and writes account items."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        super().__init__(client, settings)
        self._social = SOCIAL.name_in(settings)
        self._profiles = SocialProfiles(client)
        self._entries = SearchEntries(client, settings)

    # accounts

    async def create(
        self, user: str, name: str | None, now_ms: int, hash_: str | None, login: Login | None
    ) -> None:
        """Create a user, with a password and a login if they are given.

        Guarantees:
            Atomic. With a login, a retry after a lost response succeeds.

        Raises:
            Conflict: a user with this name exists.
            Unavailable: the user may have been created.
        """
        wanted = [User(user, name, now_ms).encode()]
        if hash_ is not None:
            wanted.append(Credential(user, hash_, now_ms).encode())
        if login is not None:
            wanted.append(encode_login(login))
        actions = [
            {
                "Put": {
                    "TableName": self._table,
                    "Item": item,
                    "ConditionExpression": "attribute_not_exists(#pk)",
                    "ExpressionAttributeNames": {"#pk": Field.PK},
                }
            }
            for item in wanted
        ]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed:
            login_row = None if login is None else await self.find_login(user, login.login)
            if login is None or login_row is None or login_row.seed != login.seed:
                raise Conflict("user: this name is already taken") from None

    async def list_users(self, users: Collection[str]) -> list[User]:
        """Return the existing users among `users`, sorted by id. Strongly consistent."""
        keys = [
            directory_items.row_key(directory_items.user_key(user), directory_items.user_key(user))
            for user in users
        ]
        rows = await get_items(self._client, self._table, keys)
        return sorted(map(User.decode, rows), key=lambda user: user.user)

    async def put_profile(
        self, user: str, changes: Mapping[str, str | None], *, is_discoverable: bool | None = None
    ) -> User:
        """Set `name` and `about` of a user; None removes a field.

        `is_discoverable`: whether others can find the user by name; None keeps the setting. The
        public profile (`chatserver.features.social.warm.profiles`) and the search entries change in
        the same transaction.

        Raises:
            NotFound: the user does not exist.
            Unavailable: the profile may have changed.
        """
        fields = {"name": Field.NAME, "about": Field.ABOUT}
        wanted: dict[str, Value | None] = {fields[name]: text for name, text in changes.items()}
        for _ in range(PROFILE_TRIES_MAX):
            record = await self.find_user(user)
            if record is None:
                raise NotFound(f"user {user}: does not exist")
            actions = self._build_profile_actions(record, wanted, is_discoverable=is_discoverable)
            request = {"TransactItems": actions, "ClientRequestToken": new_id()}
            try:
                await self._client.call("transact_write_items", request)
                break
            except ConditionFailed:
                # The user has no profile row yet, was erased, or was changed by another request.
                await self._profiles.make_info(user)
        else:
            raise Unavailable(f"user {user}: too many concurrent profile changes; try again")
        stored = await self.find_user(user)
        if stored is None:
            raise NotFound(f"user {user}: does not exist")
        return stored

    def _build_profile_actions(
        self, record: User, wanted: Mapping[str, Value | None], *, is_discoverable: bool | None
    ) -> list[dict[str, Any]]:
        """Return the transaction actions that change a profile.

        The transaction fails if the search words, or the name that they are built from, have
        changed since `record` was read.
        """
        name = wanted.get(Field.NAME, record.name)
        is_kept = bool(record.words) if is_discoverable is None else is_discoverable
        words = list_search_words(record.user, str(name or "")) if is_kept else ()
        key = directory_items.user_key(record.user)
        row = make_update(self._table, key, key, {**wanted, Field.WORDS: words or None})
        row["ConditionExpression"] += (
            " AND #words = :before" if record.words else " AND attribute_not_exists(#words)"
        )
        values: Item = row.get("ExpressionAttributeValues", {})
        if record.words:
            values[":before"] = {"L": [{"S": word} for word in record.words]}
        # `words` are built from `record.name`: the transaction must fail if the name has changed.
        if words and Field.NAME not in wanted:
            row["ExpressionAttributeNames"]["#name"] = Field.NAME
            if record.name is None:
                row["ConditionExpression"] += " AND attribute_not_exists(#name)"
            else:
                row["ConditionExpression"] += " AND #name = :name"
                values[":name"] = {"S": record.name}
        if values:
            row["ExpressionAttributeValues"] = values
        actions = [{"Update": row}]
        if wanted:
            # `name` and `about` have the same attribute names in both tables.
            actions.append({"Update": make_update(self._social, key, INFO, wanted)})
        return actions + self._entries.build_replace_actions(record.user, record.words, words)

    async def find_credential(self, user: str) -> Credential | None:
        """Return the user's password hash. Strongly consistent."""
        item = await self._find(user, f"cred#{user}")
        if item is None:
            return None
        return Credential(user, get_text(item, Field.HASH), get_number(item, Field.CHANGED))

    async def remove_credential(self, user: str) -> bool:
        """Delete a user's password; return False if there is none."""
        request = {
            "TableName": self._table,
            "Key": directory_items.row_key(directory_items.user_key(user), f"cred#{user}"),
            "ReturnValues": "ALL_OLD",
        }
        return "Attributes" in await self._client.call("delete_item", request)

    async def put_hash(self, user: str, hash_: str, now_ms: int, instead_of: str) -> bool:
        """Replace the password hash `instead_of`; return False if another hash is stored."""
        request = {
            "TableName": self._table,
            "Item": Credential(user, hash_, now_ms).encode(),
            "ConditionExpression": "#hash IN (:old, :new)",
            "ExpressionAttributeNames": {"#hash": Field.HASH},
            # Also accepts the new hash: an attempt whose response was lost may have written it.
            "ExpressionAttributeValues": {":old": {"S": instead_of}, ":new": {"S": hash_}},
        }
        return await write_conditionally(self._client, "put_item", request)

    async def set_hash(self, user: str, hash_: str, now_ms: int) -> None:
        """Set a user's password hash, replacing any other. Idempotent."""
        item = Credential(user, hash_, now_ms).encode()
        await self._client.call("put_item", {"TableName": self._table, "Item": item})
