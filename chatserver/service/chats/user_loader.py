"""Loading of users into Redis: the user state with chats and marks, blocks and revocations.

Runs in `workers.rpc` on behalf of gateways, and in the API on demand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.inboxes import ListedChat
from chatserver.hot.chats.amendments import Hidden
from chatserver.hot.chats.hot_chat_loader import HotChatLoader
from chatserver.hot.users.inbox import Inboxes
from chatserver.service.membership.change_records import is_large_in_inboxes
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.warm.chats.directory import Directory, Membership, Part

COMPANION_CHATS_MAX = 500  # per user, the newest; daily renewal creates many
_PAGE = 100


class UserLoader:
    """Loads users. `restore_revoked` restores a user's revocations in Redis."""

    def __init__(
        self,
        *,
        directory: Directory,
        hot: HotChatLoader,
        inboxes: Inboxes,
        hidden: Hidden,
        block_policy: BlockPolicy,
        clock: Clock,
        restore_revoked: Callable[[UserId], Awaitable[None]] | None = None,
    ) -> None:
        self._directory = directory
        self._hot = hot
        self._inboxes = inboxes
        self._hidden = hidden
        self._block_policy = block_policy
        self._clock = clock
        self._restore_revoked = restore_revoked

    async def ensure_loaded(self, user: UserId, *, is_vouched: bool) -> None:
        """Ensure that the user exists and that the user state is loaded.

        `is_vouched`: a token proves the name, so the first call creates the user.

        Guarantees:
            Idempotent.
            Cost: one Redis call for a loaded user.

        Raises:
            NotFound: there is no such user, and no token proves the name.
            Unavailable: a store does not respond.
        """
        if await self._inboxes.is_known(user):
            return
        if not is_vouched:
            await self._directory.get_user(user)
        await self.load_user(user)

    async def load_user(self, user: UserId) -> None:
        """Create the user if needed, and load the user state with chats and marks.

        Guarantees:
            Idempotent. The first call creates the user: the token proves the name.
        """
        epoch = self._hot.epoch_of_user(user)
        record = await self._directory.put_user_if_absent(user, None, self._clock.time())
        memberships = await self._list_memberships(user, "others")
        memberships += await self._list_memberships(user, "sessions", COMPANION_CHATS_MAX)
        # The user state is loaded last. Once it is loaded, all other data of the user in Redis is
        # considered complete.
        if self._restore_revoked is not None:
            await self._restore_revoked(user)
        if record.erased_ms is not None:
            # The revocations reject the user. A loaded state would prevent further directory reads.
            return
        await self._block_policy.restore(user)
        hidden = {ChatId(chat.chat): member.hidden for chat, member in memberships if member.hidden}
        await self._hidden.open_hidden(user, hidden)
        await self._inboxes.open_box(user, [_list_chat(each) for each in memberships], epoch)

    async def _list_memberships(
        self, user: UserId, part: Part, rows_max: int | None = None
    ) -> list[Membership]:
        """Return a user's chats and memberships: at most `rows_max`, or all if it is None."""
        rows: list[Membership] = []
        start = None
        while rows_max is None or len(rows) < rows_max:
            limit = _PAGE if rows_max is None else min(_PAGE, rows_max - len(rows))
            page = await self._directory.list_memberships(user, limit=limit, start=start, part=part)
            rows += page.items
            start = page.next
            if start is None:
                break
        return rows


def _list_chat(membership: Membership) -> ListedChat:
    chat, member = membership
    since = Seq(max(0, member.joined - 1)) if is_large_in_inboxes(chat) else None
    return ListedChat(
        ChatId(chat.chat), Seq(member.read), Seq(member.received), since, chat.version
    )
