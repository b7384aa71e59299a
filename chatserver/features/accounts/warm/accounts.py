"""Password hashes and profiles in the DynamoDB table `directory`. `Logins` stores the logins.

| record       | `PK`       | `SK`          | attributes     |
|--------------|------------|---------------|----------------|
| `Credential` | `u#<user>` | `cred#<user>` | `hash changed` |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final

from chatserver.domain.access.logins import Login
from chatserver.domain.ids import new_id
from chatserver.errors import Conflict, NotFound, Unavailable
from chatserver.features.accounts.search_words import list_search_words
from chatserver.features.accounts.warm.search_entries import SearchEntries
from chatserver.features.social.warm.profiles import SocialProfiles
from chatserver.features.social.warm.social_items import EXISTS, INFO_ITEM
from chatserver.warm.chats.directory_items import USER, User, user_key
from chatserver.warm.chats.logins import IS_ACTIVE, LOGIN, Logins
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient
from chatserver.warm.dynamo.codecs import Codec
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import SOCIAL
from chatserver.warm.schema.tables import DirectoryField as Field

PROFILE_TRIES_MAX: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Credential:
    """A user's password hash."""

    user: str
    hash: str
    changed_ms: int


# SK repeats the user; otherwise the index `by_member` would have all rows in one partition.
CREDENTIAL: Final = Codec(
    Credential, "u#{user}", "cred#{user}", hash=Field.HASH, changed_ms=Field.CHANGED
)


class AccountRows(Logins):
    """Reads and writes account items."""

    def __init__(self, client: DynamoClient) -> None:
        super().__init__(client)
        self._social = Table(client, SOCIAL)
        self._profiles = SocialProfiles(client)
        self._entries = SearchEntries(client)

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
        items = [USER.encode(User(user, name, now_ms))]
        if hash_ is not None:
            items.append(CREDENTIAL.encode(Credential(user, hash_, now_ms)))
        if login is not None:
            items.append(LOGIN.encode(login))
        is_new = Attr(Field.PK).is_absent
        try:
            await self._client.transact(
                [self._table.put_action(item, if_=is_new) for item in items]
            )
        except ConditionFailed:
            login_row = None if login is None else await self.find_login(user, login.login)
            if login is None or login_row is None or login_row.seed != login.seed:
                raise Conflict("user: this name is already taken") from None

    async def list_users(self, users: Collection[str]) -> list[User]:
        """Return the existing users among `users`, sorted by id. Strongly consistent."""
        rows = await self._table.get_items([(user_key(user), user_key(user)) for user in users])
        return sorted(map(USER.decode, rows), key=lambda user: user.user)

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
        attributes = {fields[name]: text for name, text in changes.items()}
        for _ in range(PROFILE_TRIES_MAX):
            record = await self.find_user(user)
            if record is None:
                raise NotFound(f"user {user}: does not exist")
            actions = self._build_profile_actions(
                record, attributes, is_discoverable=is_discoverable
            )
            try:
                await self._client.transact(actions, new_id())
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
        self, record: User, attributes: Mapping[str, str | None], *, is_discoverable: bool | None
    ) -> list[Action]:
        """Return the transaction actions that change a profile.

        The transaction fails if the search words, or the name that they are built from, have
        changed since `record` was read.
        """
        name = attributes.get(Field.NAME, record.name)
        is_kept = bool(record.words) if is_discoverable is None else is_discoverable
        words = list_search_words(record.user, name or "") if is_kept else ()
        is_unchanged = IS_ACTIVE & Attr(Field.WORDS).matches(record.words or None)
        # `words` are built from `record.name`: the transaction must fail if the name has changed.
        if words and Field.NAME not in attributes:
            is_unchanged &= Attr(Field.NAME).matches(record.name)
        key: Key = (user_key(record.user), user_key(record.user))
        changes = {**attributes, Field.WORDS: words or None}
        actions = [self._table.update_action(key, changes, if_=is_unchanged)]
        if attributes:
            # `name` and `about` have the same attribute names in both tables.
            info = INFO_ITEM.key(user=record.user)
            actions.append(self._social.update_action(info, attributes, if_=EXISTS))
        return actions + self._entries.build_replace_actions(record.user, record.words, words)

    async def find_credential(self, user: str) -> Credential | None:
        """Return the user's password hash. Strongly consistent."""
        item = await self._table.find(CREDENTIAL.key(user=user))
        return None if item is None else CREDENTIAL.decode(item)

    async def remove_credential(self, user: str) -> bool:
        """Delete a user's password; return False if there is none."""
        return bool(await self._table.delete(CREDENTIAL.key(user=user), "old"))

    async def put_hash(self, user: str, hash_: str, now_ms: int, instead_of: str) -> bool:
        """Replace the password hash `instead_of`; return False if another hash is stored."""
        # Also accepts the new hash: an attempt whose response was lost may have written it.
        is_expected = Attr(Field.HASH).is_in((instead_of, hash_))
        item = CREDENTIAL.encode(Credential(user, hash_, now_ms))
        return await try_write(self._table.put(item, if_=is_expected))

    async def set_hash(self, user: str, hash_: str, now_ms: int) -> None:
        """Set a user's password hash, replacing any other. Idempotent."""
        await self._table.put(CREDENTIAL.encode(Credential(user, hash_, now_ms)))
