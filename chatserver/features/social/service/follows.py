"""Follow use cases.

::

    follow ─► room in the queue? ─► both edges, unless one blocks the other ─► queue ─► `counters`
                                                     └─► newest posts ─► timeline of the follower
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Final

import attrs
import structlog

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.ids import UserId
from chatserver.errors import ChatError, Conflict
from chatserver.features.social.hot import CountQueue
from chatserver.features.social.model import Change, check_other
from chatserver.features.social.service.timelines import TimelineBackfill
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.features.social.warm.profiles import SocialProfiles

log = structlog.get_logger()

FOLLOWING_MAX: Final = 10_000  # approximate, because follows are counted with a delay
RETRY_S: Final = 600.0  # a follow repeated within this time adds the posts to the timeline again


@attrs.define(eq=False, repr=False, kw_only=True)
class Follows:
    """Follows and unfollows."""

    _graph: FollowEdges
    _profiles: SocialProfiles
    _queue: CountQueue
    _backfill: TimelineBackfill
    _clock: Clock

    async def follow(self, user: UserId, other: UserId) -> None:
        """Follow a user, and add their newest posts to the follower's timeline.

        Guarantees:
            Idempotent and atomic: both follow edges are written, or none. The counts are updated
            within `FLUSH_S`. If the count changes cannot be queued, the follow is rolled back.
            After a crash between writing the edges and queueing the changes, the counts are off
            by one until `chatserver audit social --repair` runs.

        Raises:
            BadRequest: both are the same user.
            NotFound: there is no such user.
            Forbidden: one of the two blocks the other.
            Conflict: the user follows the maximum number of users.
            Overloaded: the queue of count changes is full.
            Unavailable: the follow may or may not have been written.
        """
        check_other(user, other)
        mine, theirs, counts = await self._profiles.find_follow(user, other)
        if theirs is None:
            await self._profiles.make_info(other)
        if mine is None:
            await self._profiles.make_info(user)
        if counts is not None and counts.following >= FOLLOWING_MAX:
            if await self._graph.find_edge(user, other) is not None:
                return
            raise Conflict(f"following: at most {FOLLOWING_MAX:,} users are allowed")
        await self._queue.check_capacity(user, other)
        if await self._graph.follow(
            user, other, get_now_ms(self._clock), with_counts=counts is None
        ):
            try:
                await self._count(user, other, 1)
            except ChatError:
                await self._graph.unfollow(user, other)
                raise
        elif not await self._is_new(user, other):
            return
        await self._backfill.run(user, other)

    async def unfollow(self, user: UserId, other: UserId) -> bool:
        """Unfollow a user; return False if there was no follow. For guarantees, see `follow`.

        The other user's posts disappear from the user's timeline.

        Raises:
            BadRequest: both are the same user.
            Overloaded: the queue of count changes is full.
            Unavailable: the follow may or may not have been removed.
        """
        check_other(user, other)
        await self._queue.check_capacity(user, other)
        if not await self._graph.unfollow(user, other):
            return False
        try:
            await self._count(user, other, -1)
        except ChatError:
            await self._graph.follow(user, other, get_now_ms(self._clock))
            raise
        return True

    async def remove_between(self, user: str, other: str) -> None:
        """Remove the follows between two users, in both directions. Idempotent.

        Call this after a block is stored. If Redis is down, the follows are removed anyway, but the
        counts are off by one until `chatserver audit social --repair` runs.
        """
        for follower, followed in ((user, other), (other, user)):
            if await self._graph.unfollow(follower, followed):
                try:
                    await self._count(follower, followed, -1)
                except ChatError as exc:
                    log.warning(
                        "social.count_failed", user=follower, other=followed, error=exc.message
                    )

    async def find_followers(self, user: str, others: Collection[str]) -> set[str]:
        """Return which of `others` follow `user`. Strongly consistent; one call per 100 users."""
        return await self._graph.find_followers(user, others)

    async def _count(self, user: str, other: str, change: Change) -> None:
        """Queue a change to both users' counts; if the second is refused, revert the first."""
        await self._queue.add("followers", other, change)
        try:
            await self._queue.add("following", user, change)
        except ChatError:
            with contextlib.suppress(ChatError):
                await self._queue.add("followers", other, -1 if change == 1 else 1)
            raise

    async def _is_new(self, user: UserId, other: UserId) -> bool:
        """Return whether the follow is so recent that its backfill may be incomplete."""
        edge = await self._graph.find_edge(user, other)
        return edge is not None and get_now_ms(self._clock) - edge.since_ms < RETRY_S * 1000
