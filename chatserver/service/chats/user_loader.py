"""User loader: loads the user state, blocks and revocations into Redis.

It runs in `workers.rpc` on behalf of gateways, and in the API on demand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Epoch, Seq, UserId, epoch_start_ms
from chatserver.domain.inboxes import ListedChat
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.hot.users.blocks import HotBlocks
from chatserver.hot.users.inbox import Inboxes
from chatserver.service.membership.unstored_membership_changes import is_large_in_inboxes
from chatserver.task_groups import open_task_group
from chatserver.warm.chats.directory import ChatMembership, Directory
from chatserver.warm.chats.directory_items import User
from chatserver.warm.chats.user_restrictions import Restrictions, UserRestrictions

# Maximum companion chats loaded per user, newest first; each session renewal creates one.
COMPANION_CHATS_MAX = 500

INDEX_DELAY_S: Final = 2.5  # an index has every write that is older than this
_YOUNG_MS: Final = 120_000  # age of an epoch from which on nothing waits; clocks may differ
_EPOCHS_MAX: Final = 1_000  # maximum epochs whose first use is known


@attrs.define(eq=False, repr=False, kw_only=True)
class UserLoader:
    """Loads users. `restore_revoked` writes a user's revocations and ended logins to Redis."""

    _directory: Directory
    _hot: HotChatWriter
    _inboxes: Inboxes
    _hidden: HiddenMessages
    _restrictions: UserRestrictions
    _blocks: HotBlocks
    _clock: Clock
    _restore_revoked: Callable[[User, Collection[str]], Awaitable[None]] | None = None
    _first_used: dict[Epoch, float] = attrs.field(factory=dict, init=False)

    async def ensure_loaded(self, user: UserId, *, can_create: bool) -> None:
        """Load the user state if necessary; raise if the user does not exist.

        `can_create`: create the user if missing. The caller must have verified a token or API key.

        Guarantees:
            Idempotent.
            Cost: one Redis call for a loaded user.

        Raises:
            NotFound: the user does not exist, and `can_create` is False.
            Unavailable: Redis or DynamoDB does not respond.
        """
        if await self._inboxes.is_known(user):
            return
        if not can_create:
            await self._directory.get_user(user)
        await self.load_user(user)

    async def load_user(self, user: UserId) -> None:
        """Create the user if missing, and load the user state into Redis.

        The caller must have verified the user's token.

        Guarantees:
            Idempotent.
            Cost: a key in a BatchGetItem that concurrent callers share. For a new user, also a
                write; for others, `Directory.list_all_memberships`, and two more Queries if the
                user has ever had blocks or ended logins.
            If Redis has just lost its data, waits until the index of memberships has the latest
                ones (`INDEX_DELAY_S`).
        """
        epoch = self._hot.get_user_epoch(user)
        record, is_new = await self._directory.get_or_create_user(user, self._clock.time())
        if not is_new:
            await self._wait_for_index(record, epoch)
        memberships, restrictions = ([], Restrictions()) if is_new else await self._read(record)
        # The user state is loaded last, because once it is in Redis, all of the user's other data
        # in Redis is considered complete.
        if self._restore_revoked is not None:
            await self._restore_revoked(record, restrictions.ended_logins)
        if record.erased_ms is not None:
            # Do not load the state of an erased user. The revocations written above reject all
            # sessions.
            return
        await self._blocks.open_blocks(user, {UserId(other) for other in restrictions.blocks})
        hidden = {ChatId(chat.chat): member.hidden for chat, member in memberships if member.hidden}
        await self._hidden.open_hidden(user, hidden)
        await self._inboxes.open_user_state(
            user, [_list_chat(membership) for membership in memberships], epoch
        )

    async def _wait_for_index(self, record: User, epoch: Epoch) -> None:
        """Wait until the index has all memberships from before the epoch.

        Later ones reach the user state through Redis. Without this, a user who joined a chat just
        before Redis lost its data would lack the chat until the next epoch.
        """
        start_ms, now = epoch_start_ms(epoch), self._clock.monotonic()
        if record.created_ms > start_ms or self._clock.time() * 1000 > start_ms + _YOUNG_MS:
            return
        if len(self._first_used) >= _EPOCHS_MAX:
            self._first_used.clear()
        first_used = self._first_used.setdefault(epoch, now)
        if now < first_used + INDEX_DELAY_S:
            await asyncio.sleep(first_used + INDEX_DELAY_S - now)

    async def _read(self, record: User) -> tuple[list[ChatMembership], Restrictions]:
        listing = self._directory.list_all_memberships(record.user, COMPANION_CHATS_MAX)
        if not record.is_restricted:
            return await listing, Restrictions()
        async with open_task_group() as group:
            restrictions = group.create_task(
                self._restrictions.read(record.user), name="read-restrictions"
            )
            memberships = await listing
        return memberships, restrictions.result()


def _list_chat(membership: ChatMembership) -> ListedChat:
    chat, member = membership
    since = Seq(max(0, member.joined - 1)) if is_large_in_inboxes(chat) else None
    return ListedChat(
        ChatId(chat.chat), Seq(member.read), Seq(member.received), since, chat.version
    )
