"""Changes to a chat's membership and settings, in table `directory`.

The chat's item has a `version` that increases with each change. A change writes the chat's item and
the member items in one transaction, on the condition that `version` is unchanged. So if the member
items were read after the chat's item, the change is written only if none of them has changed.

Invariant: attribute `members` is the number of members.

The chat's item stores the change (`change`) until it is applied in Redis and delivered, so that
another process can complete it after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from chatserver.config import Warm
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import DIRECT_PREFIX, Seq, UserId
from chatserver.domain.membership_periods import FormerMember, Periods
from chatserver.domain.membership_rules import Role
from chatserver.errors import NotFound
from chatserver.warm.chats import directory_items, moderation
from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.directory_items import Chat, Member
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

CHANGED_MAX: Final = 99  # maximum members per change: a transaction has at most 100 actions
_FIXES_IN_FLIGHT_MAX = 16


class Memberships:
    """Repository of memberships and their changes."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock | None = None) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)
        self._directory = Directory(client, settings)
        self._moderation = moderation.Moderation(client)
        self._clock = clock or SystemClock()

    async def get_chat(self, chat: str) -> Chat:
        """Return a chat. Strongly consistent. Raises NotFound."""
        return await self._directory.get_chat(chat)

    async def read(self, chat: str, users: Collection[str]) -> tuple[Chat, dict[str, Member]]:
        """Return `(chat, members)`; `members` maps each of `users` who is a member to their item.

        Guarantees:
            The members are read after the chat. If `commit` then succeeds for the returned chat,
            the members have not changed since.

        Raises:
            NotFound: the chat does not exist.
        """
        row = await self._directory.get_chat(chat)
        if row.count is None:
            row = dataclasses.replace(row, count=len(await self._directory.list_members(chat)))
        key = directory_items.chat_key(chat)
        keys = [
            directory_items.row_key(key, directory_items.member_key(user)) for user in set(users)
        ]
        members = [Member.decode(item) for item in await get_items(self._client, self._table, keys)]
        return row, {member.user: member for member in members}

    async def list_seniority(self, chat: str) -> list[tuple[str, Role]]:
        """Return all members of a chat and their roles, ordered by join time."""
        members = await self._directory.list_members(chat)
        members.sort(key=lambda member: (member.joined, member.user))
        return [(member.user, member.role) for member in members]

    async def list_first(self, chat: str, limit: int) -> tuple[Chat, list[Member]]:
        """Return a chat and its first `limit` members by user id, with one Query.

        Strongly consistent.

        Raises:
            NotFound: the chat does not exist.
        """
        key = directory_items.chat_key(chat)
        span = Span(DIRECTORY, key, between=(key, directory_items.AFTER_MEMBERS))
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": limit + 1}
        rows: list[Item] = (await self._client.call("query", request))["Items"]
        if not rows or rows[0][Field.SK]["S"] != key or not directory_items.is_ready(rows[0]):
            raise NotFound(f"chat {chat}: does not exist")
        chat_row = Chat.decode(rows[0])
        listed = [Member.decode(row) for row in rows[1:]]
        return chat_row, directory_items.with_unlisted(chat_row, listed)[:limit]

    async def list_after(self, chat: str, after: str | None, limit: int) -> list[Member]:
        """Return a chat's first `limit` members after user id `after`. Strongly consistent."""
        if chat.startswith(DIRECT_PREFIX):
            _, first_two = await self.list_first(chat, 2)
            return [member for member in first_two if member.user > (after or "")][:limit]
        key = directory_items.chat_key(chat)
        first = (
            directory_items.MEMBER_PREFIX if after is None else directory_items.member_key(after)
        )
        span = Span(DIRECTORY, key, between=(first, directory_items.AFTER_MEMBERS))
        # Read one more, because bounds are inclusive and `after` itself is dropped.
        request = {**span.query(self._settings), "ConsistentRead": True, "Limit": limit + 1}
        rows: list[Item] = (await self._client.call("query", request))["Items"]
        members = [Member.decode(row) for row in rows if row[Field.SK]["S"] != first]
        return members[:limit]

    async def find_known(self, users: Collection[str]) -> set[str]:
        """Return which of `users` have an account. Strongly consistent."""
        return await self._directory.find_known(users)

    async def find_banned(self, chat: str, users: Collection[str]) -> set[str]:
        """Return which of `users` are banned from a chat. Strongly consistent."""
        key = directory_items.chat_key(chat)
        keys = [directory_items.row_key(key, moderation.ban_key(user)) for user in set(users)]
        items = await get_items(self._client, self._table, keys)
        return {moderation.BAN.decode(item).user for item in items}

    async def list_former(self, chat: str, users: Collection[str]) -> dict[str, FormerMember]:
        """Return the former membership of each of `users` who has left. Strongly consistent."""
        keys = [directory_items.left_key(chat, user) for user in users]
        items = await get_items(self._client, self._table, keys)
        return dict(map(directory_items.decode_former, items))

    async def find_periods(self, chat: str, user: str) -> Periods:
        """Return a member's earlier membership periods; may be empty. Strongly consistent."""
        row = await find_item(self._client, self._table, self._member_row(chat, user))
        return () if row is None else Member.decode(row).periods

    async def find_spans(
        self, user: str, chats: Collection[str], *, as_member: bool = False
    ) -> dict[str, tuple[int, Periods]]:
        """Return `(seq, periods)` for each of `chats` of which the user is a member.

        `seq` is the first seq that the user can read; `periods` are earlier membership periods.
        With `as_member`, `seq` is the seq at which the user joined, even if members may read the
        full history.

        Guarantees:
            Strongly consistent.
            Cost: one BatchGetItem per 50 chats.
        """
        keys: list[Item] = []
        for key in map(directory_items.chat_key, set(chats)):
            keys += [
                directory_items.row_key(key, key),
                directory_items.row_key(key, directory_items.member_key(user)),
            ]
        items = await get_items(self._client, self._table, keys)
        is_earlier_history_readable: dict[str, bool] = {}
        joined: dict[str, tuple[int, Periods]] = {}
        for item in items:
            if item[Field.PK] != item[Field.SK]:
                member = Member.decode(item)
                joined[member.chat] = (max(1, member.joined), member.periods)
            elif directory_items.is_ready(item):
                chat = Chat.decode(item)
                is_earlier_history_readable[chat.chat] = chat.history == "all"
                if user in chat.users:
                    joined.setdefault(chat.chat, (1, ()))
        return {
            chat: (1, ()) if is_earlier_history_readable[chat] and not as_member else span
            for chat, span in joined.items()
            if chat in is_earlier_history_readable
        }

    async def commit(
        self,
        chat: Chat,
        change: str,
        added: Mapping[str, tuple[Role, int]],
        roles: Mapping[str, Role],
        removed: Collection[str],
        settings: Mapping[str, str | int],
        large: int = 0,
        muted: Mapping[str, int | None] | None = None,
        banned: Mapping[str, str] | None = None,
        former: Mapping[str, FormerMember] | None = None,
        unstored: str = "",
    ) -> Chat | None:
        """Write a change to `chat`; return None if the chat has changed since it was read.

        `added` maps new members to their role and the lowest chat seq at which they join. `roles`
        maps members to new roles. `settings` may contain name, topic, picture, joining, history,
        slow_s and retention_s. `muted` maps members to the end of their mute, or None to unmute.
        `banned` maps banned users to the user who bans them. `former` maps removed members to the
        former membership to store, and rejoining members to the former membership to restore.
        `large` is the version at which the chat became large, or 0. `unstored` contains the
        changes, including this one, whose entries are not in DynamoDB yet.

        Guarantees:
            Atomic. A retry after a lost response is detected and returns the same result.
            Cancellation: the change may have been written.

        Raises:
            Unavailable: the change may have been written.
        """
        after = dataclasses.replace(
            chat,
            version=chat.version + 1,
            change=change,
            unstored=unstored,
            count=(chat.count or 0) + len(added) - len(removed),
            large=large,
            **settings,  # type: ignore[arg-type]  # the frame types have validated the values
        )
        actions = [self._make_chat_update(after, settings)]
        actions += self._make_member_writes(chat.chat, added, roles, removed, former or {})
        actions += [
            self._make_mute(chat.chat, user, until) for user, until in (muted or {}).items()
        ]
        actions += [
            self._make_ban(chat.chat, user, actor) for user, actor in (banned or {}).items()
        ]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed as exc:
            stored = Chat.decode(exc.stored[0]) if exc.stored and exc.stored[0] else None
            if stored is None or (stored.version, stored.change) != (after.version, change):
                return None
        return after

    async def set_retention(self, chat: str, retention_s: int) -> bool:
        """Set the message lifetime of a direct chat.

        Return False if the lifetime is unchanged or the direct chat does not exist.
        """
        key = directory_items.chat_key(chat)
        request = {
            "TableName": self._table,
            "Key": directory_items.row_key(key, key),
            "UpdateExpression": "SET #version = #version + :one, #retention = :s",
            "ConditionExpression": "#kind = :direct AND (attribute_not_exists(#retention) "
            "OR #retention <> :s)",
            "ExpressionAttributeNames": {
                "#kind": Field.KIND,
                "#version": Field.VERSION,
                "#retention": Field.RETENTION_S,
            },
            "ExpressionAttributeValues": {
                ":one": {"N": "1"},
                ":s": {"N": str(retention_s)},
                ":direct": {"S": "direct"},
            },
        }
        return await write_conditionally(self._client, "update_item", request)

    def _make_ban(self, chat: str, user: str, actor: str) -> dict[str, Any]:
        ban = moderation.Ban(chat, user, actor, int(self._clock.time() * 1000))
        return {"Put": {"TableName": self._table, "Item": moderation.BAN.encode(ban)}}

    async def delete_ban(self, chat: str, user: str) -> None:
        """Remove a ban. Idempotent."""
        await self._moderation.delete_ban(chat, user)

    def _make_mute(self, chat: str, user: str, until: int | None) -> dict[str, Any]:
        update: dict[str, Any] = {
            "TableName": self._table,
            "Key": self._member_row(chat, user),
            "UpdateExpression": "REMOVE #until" if until is None else "SET #until = :until",
            "ConditionExpression": "attribute_exists(#role)",
            "ExpressionAttributeNames": {"#until": Field.MUTED_UNTIL, "#role": Field.ROLE},
        }
        if until is not None:
            update["ExpressionAttributeValues"] = {":until": {"N": str(until)}}
        return {"Update": update}

    def _make_chat_update(self, after: Chat, settings: Mapping[str, str | int]) -> dict[str, Any]:
        key = directory_items.chat_key(after.chat)
        values: dict[str, dict[str, str]] = {
            Field.VERSION: {"N": str(after.version)},
            Field.MEMBERS: {"N": str(after.count)},
            Field.CHANGE: {"S": after.change or ""},
            Field.UNSTORED: {"S": after.unstored or ""},
            Field.LARGE: {"N": str(after.large)},
            **{
                name: {"N": str(value)} if isinstance(value, int) else {"S": value}
                for name, value in settings.items()
            },
        }
        update = {
            "TableName": self._table,
            "Key": directory_items.row_key(key, key),
            "UpdateExpression": "SET " + ", ".join(f"#{name} = :{name}" for name in values),
            "ConditionExpression": f"#{Field.VERSION} = :before AND #{Field.STATE} = :ready",
            "ExpressionAttributeNames": {f"#{name}": name for name in (*values, Field.STATE)},
            "ExpressionAttributeValues": {
                ":before": {"N": str(after.version - 1)},
                ":ready": {"S": directory_items.READY},
                **{f":{name}": value for name, value in values.items()},
            },
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return {"Update": update}

    def _make_member_writes(
        self,
        chat: str,
        added: Mapping[str, tuple[Role, int]],
        roles: Mapping[str, Role],
        removed: Collection[str],
        former: Mapping[str, FormerMember],
    ) -> list[dict[str, Any]]:
        actions: list[dict[str, Any]] = []
        for user, (role, joined) in added.items():
            former_member = former.get(user, FormerMember())
            row = Member(
                chat,
                user,
                role,
                joined,
                read=joined - 1,
                received=joined - 1,
                hidden=former_member.hidden,
                muted_until=former_member.muted_until,
                quiet_until=former_member.quiet_until,
                periods=former_member.periods,
            )
            actions.append({"Put": {"TableName": self._table, "Item": row.encode()}})
        for user, role in roles.items():
            update = {
                "TableName": self._table,
                "Key": self._member_row(chat, user),
                "UpdateExpression": "SET #role = :role",
                "ConditionExpression": "attribute_exists(#role)",
                "ExpressionAttributeNames": {"#role": Field.ROLE},
                "ExpressionAttributeValues": {":role": {"S": role}},
            }
            actions.append({"Update": update})
        for user in removed:
            delete: dict[str, Any] = {"TableName": self._table, "Key": self._member_row(chat, user)}
            if user in former:
                delete |= _make_hidden_condition(former[user].hidden)
            actions.append({"Delete": delete})
            if user in former:
                item = directory_items.encode_former(chat, user, former[user])
                actions.append({"Put": {"TableName": self._table, "Item": item}})
        return actions

    def _member_row(self, chat: str, user: str) -> Item:
        return directory_items.row_key(
            directory_items.chat_key(chat), directory_items.member_key(user)
        )

    # After a commit.

    async def record_join_seqs(self, chat: str, joined: Sequence[tuple[str, int]]) -> None:
        """Set the seqs at which members joined, after the join entries have been written.

        Guarantees:
            Idempotent. A seq never decreases. Users who are no longer members are skipped.
        """
        for start in range(0, len(joined), _FIXES_IN_FLIGHT_MAX):
            batch = joined[start : start + _FIXES_IN_FLIGHT_MAX]
            fixes = [self._record_join_seq(chat, user, seq) for user, seq in batch]
            # Await all before raising the first error, so that no task is left running.
            for outcome in await asyncio.gather(*fixes, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, ConditionFailed):
                    raise outcome

    async def _record_join_seq(self, chat: str, user: str, seq: int) -> None:
        request = {
            "TableName": self._table,
            "Key": self._member_row(chat, user),
            "UpdateExpression": "SET #joined = :seq",
            # If the item does not exist, its attribute is missing, so the condition is false too.
            "ConditionExpression": "#joined < :seq",
            "ExpressionAttributeNames": {"#joined": Field.JOINED},
            "ExpressionAttributeValues": {":seq": {"N": str(seq)}},
        }
        await self._client.call("update_item", request)

    async def record_leave_seq(
        self, chat: str, user: str, mid: str, seq: int, joined: int | None = None
    ) -> None:
        """Set the seq at which entry `mid` ended a membership, after the entry has been written.

        `joined` is the seq at which the membership began; None keeps the stored value. A later
        membership of the user is not changed. Idempotent.
        """
        names = {"#left": Field.LEFT, "#mid": Field.MID}
        values = {":seq": {"N": str(seq)}, ":mid": {"S": mid}}
        update = "SET #left = :seq"
        if joined is not None:
            update += ", #joined = :joined"
            names["#joined"] = Field.JOINED
            values[":joined"] = {"N": str(joined)}
        request = {
            "TableName": self._table,
            "Key": directory_items.left_key(chat, user),
            "UpdateExpression": update,
            "ConditionExpression": "#mid = :mid",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)

    async def set_joined(self, chat: str, version: int, joined: Mapping[UserId, Seq]) -> bool:
        """Set the seqs at which members joined; return False if `version` is outdated.

        Guarantees:
            Idempotent; users who are no longer members are skipped.
            Cost: one BatchGetItem, and one transaction for each member whose seq changes.
        """
        if not joined:
            return True
        row, members = await self.read(chat, joined)
        if row.version != version:
            return False
        for user, seq in joined.items():
            if user in members and members[user].joined != seq:
                actions = self._build_joined_actions(chat, version, user, seq)
                try:
                    await self._client.call("transact_write_items", {"TransactItems": actions})
                except ConditionFailed:
                    return False
        return True

    def _build_joined_actions(
        self, chat: str, version: int, user: UserId, seq: Seq
    ) -> list[dict[str, Any]]:
        key = directory_items.chat_key(chat)
        check = {
            "TableName": self._table,
            "Key": directory_items.row_key(key, key),
            "ConditionExpression": "#version = :version",
            "ExpressionAttributeNames": {"#version": Field.VERSION},
            "ExpressionAttributeValues": {":version": {"N": str(version)}},
        }
        update = {
            "TableName": self._table,
            "Key": self._member_row(chat, user),
            "UpdateExpression": "SET #joined = :seq",
            "ConditionExpression": "attribute_exists(#joined)",
            "ExpressionAttributeNames": {"#joined": Field.JOINED},
            "ExpressionAttributeValues": {":seq": {"N": str(seq)}},
        }
        return [{"ConditionCheck": check}, {"Update": update}]

    async def put_unstored(self, chat: str, version: int, unstored: str) -> None:
        """Replace attribute `unstored` of a chat's item, unless the chat has a newer version."""
        await self._set_unless_changed(
            chat, version, "SET #name = :text", Field.UNSTORED, {":text": {"S": unstored}}
        )

    async def clear_change(self, chat: str, version: int) -> None:
        """Delete the completed change from the chat's item, unless the chat has a newer version."""
        await self._set_unless_changed(chat, version, "REMOVE #name", Field.CHANGE, {})

    async def _set_unless_changed(
        self, chat: str, version: int, update: str, name: str, values: Item
    ) -> None:
        key = directory_items.chat_key(chat)
        request = {
            "TableName": self._table,
            "Key": directory_items.row_key(key, key),
            "UpdateExpression": update,
            "ConditionExpression": "#version = :version",
            "ExpressionAttributeNames": {"#name": name, "#version": Field.VERSION},
            "ExpressionAttributeValues": {":version": {"N": str(version)}, **values},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)


def _make_hidden_condition(hidden: Sequence[int]) -> dict[str, Any]:
    names = {"#hidden": Field.HIDDEN}
    if not hidden:
        return {
            "ConditionExpression": "attribute_not_exists(#hidden)",
            "ExpressionAttributeNames": names,
        }
    return {
        "ConditionExpression": "#hidden = :hidden",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {":hidden": {"NS": [str(seq) for seq in hidden]}},
    }
