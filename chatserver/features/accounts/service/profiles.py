"""User profiles: creation without a password, lookup and changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.companion_ids import parse_person_id
from chatserver.domain.ids import UserId
from chatserver.domain.text_validation import parse_name, parse_note
from chatserver.errors import NotFound
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.warm.chats.directory_items import User


class Profiles:
    def __init__(self, rows: AccountRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock

    async def create(self, user: UserId, name: str | None) -> None:
        """Create an account without a password, on behalf of the host application.

        Raises:
            BadRequest, TooLarge: the name is not allowed.
            Conflict: a user with this name exists.
        """
        display_name = None if name is None else parse_name(name)
        parse_person_id(user, "user")
        await self._rows.create(user, display_name, get_now_ms(self._clock), None, None)

    async def get(self, user: UserId) -> User:
        """Return the user's record. Raises NotFound."""
        record = await self._rows.find_user(user)
        if record is None or record.erased_ms is not None:
            raise NotFound("user: does not exist")
        return record

    async def list_existing(self, users: Collection[UserId]) -> list[User]:
        """Return the records of the existing users among `users`, sorted by id."""
        records = await self._rows.list_users(users)
        return [record for record in records if record.erased_ms is None]

    async def put(
        self,
        user: UserId,
        changes: Mapping[str, str | None],
        *,
        is_discoverable: bool | None = None,
    ) -> User:
        """Change `name` and `about`; None or an empty string removes a field.

        `is_discoverable`: whether others can find the user by name; None keeps the setting.

        Raises:
            BadRequest, TooLarge: a value is not allowed.
            NotFound: the user does not exist.
        """
        desired: dict[str, str | None] = {}
        for field, text in changes.items():
            desired[field] = (
                None
                if not text
                else parse_note(text, "about")
                if field == "about"
                else parse_name(text)
            )
        if not desired and is_discoverable is None:
            return await self.get(user)
        return await self._rows.put_profile(user, desired, is_discoverable=is_discoverable)
