"""Timeline worker: fans posts out to the timelines of followers, page by page.

::

    job ─► page of followers ─► timelines ─► signals to online users ─► checkpoint ────┐
                 ▲                                                                     │
                 └────────────── until there are no more ── then delete the job ◄──────┘

A job is written in the same transaction as its post, so none is lost. Jobs are divided into shards,
each processed by one lease holder. If the holder crashes, the next one resumes after the
checkpoint. A repeated page writes the same timeline entries, so every follower gets each post
exactly once.

Authors with more than `fanout_followers_max` followers use fan-out on read: their posts are merged
into timelines at read time. The first `fanout_followers_max` followers still get a signal (a frame
that is not stored) if they are online.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.aligned_sleep import compute_aligned_delay
from chatserver.domain.ids import UserId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import NotFound
from chatserver.features.social.container import SocialContainer
from chatserver.features.social.frames import PostSignal
from chatserver.features.social.hot import PostWakeUp
from chatserver.features.social.model import PostId, first_post_id
from chatserver.features.social.service.timelines import DAY_S
from chatserver.features.social.settings import Timeline
from chatserver.features.social.warm.fanouts import SHARDS, FanoutJob
from chatserver.protocol import codec
from chatserver.task_groups import open_task_group
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint

log = structlog.get_logger()

PAGE = 500  # number of followers between two checkpoints
WRITES_IN_FLIGHT_MAX = 8  # maximum concurrent writes, each with 25 timeline entries
POLL_S = 30.0  # maximum time between two polls
LEASE_S = 10.0

JOBS_MAX: Final = 50  # maximum jobs read per poll
LIKES_PAGE: Final = 500
# No signal is sent for posts older than this. Clocks may differ by up to two minutes.
SIGNALS_S_MAX: Final = 240.0


class TimelineWorker:
    """Processes the fan-out jobs in one shard."""

    def __init__(
        self, container: StorageContainer, wake_up: PostWakeUp, shard: int, owner: str
    ) -> None:
        self._container = container
        self._social = container.get(SocialContainer)
        self._settings = container.settings.get(Timeline)
        self._clock = container.clock
        self._shard = shard
        partition = shard % container.hot.keys.partitions
        self._lease = container.make_lease(f"timeline-{shard}", owner, LEASE_S, partition)
        self._wake_up, self._seen_version = wake_up, -1
        self._poll_at = 0.0

    async def run(self) -> None:
        """Process jobs until cancelled; see `run_timeline`."""
        async with self._lease.release_on_exit():
            while True:
                if not await self._lease.hold():
                    await asyncio.sleep(add_jitter(LEASE_S / 5))
                    continue
                if self._is_due() and await self.step():
                    self._poll_at = 0.0
                else:
                    await self._wake_up.wait(self._seen_version, compute_aligned_delay(LEASE_S / 3))

    def _is_due(self) -> bool:
        """Return whether there may be jobs: after a wake-up, or after the poll interval."""
        version, now = self._wake_up.version, self._clock.monotonic()
        if version == self._seen_version and now < self._poll_at:
            return False
        self._seen_version, self._poll_at = version, now + POLL_S
        return True

    async def step(self) -> bool:
        """Process the pending jobs; return False if there were none."""
        jobs = await self._social.fanouts.list_jobs(self._shard, JOBS_MAX)
        for job in jobs:
            await self._lease.hold()
            if job.kind == "gone":
                await self._remove_likes(job)
            else:
                await self._fan_out(job)
            await self._social.fanouts.finish(job)
        return bool(jobs)

    async def _remove_likes(self, job: FanoutJob) -> None:
        while await self._social.likes.remove_some(job.post_ref, LIKES_PAGE) == LIKES_PAGE:
            await self._lease.hold()

    async def _fan_out(self, job: FanoutJob) -> None:
        author = job.post_ref.author
        try:
            await self._social.posts.get_post(author, job.post_ref.post)
        except NotFound:
            return  # the post or its author was deleted
        followers_max = self._settings.fanout_followers_max
        # A fan-out with a checkpoint continues even if the author's posts are now merged on read:
        # some timelines already have the post.
        is_merged = job.checkpoint is None and await self._is_author_merged_on_read(author)
        if is_merged:
            await self._social.fanouts.put_merged(job.post_ref, self._get_oldest())
        if job.checkpoint is None:
            await self._write(job, [author])  # users see their own posts in their timeline
        count, checkpoint = 0, job.checkpoint
        while not is_merged or count < followers_max:
            page = await self._social.graph.list_followers_after(author, checkpoint, PAGE)
            if page:
                failpoint("timeline.before_page")
                if not is_merged:
                    await self._write(job, page)
                failpoint("timeline.after_page")
                await self._signal_online(job, page)
                count, checkpoint = count + len(page), page[-1]
                if not is_merged:
                    await self._social.fanouts.save_checkpoint(job, checkpoint)
                failpoint("timeline.after_record")
                await self._lease.hold()
            if len(page) < PAGE:
                break
        metrics.TIMELINE_LAG.observe(max(0.0, self._clock.time() - job.created_ms / 1000))

    async def _is_author_merged_on_read(self, author: str) -> bool:
        """Return whether the author's posts are merged into timelines on read.

        They are if the author's recent posts are already merged, or if the author has more than
        `fanout_followers_max` followers.
        """
        merged = await self._social.fanouts.find_merged_post_range(author)
        if merged is not None and merged.last >= self._get_oldest():
            return True
        _, counts = await self._social.profiles.find_profile(author)
        return counts.followers > self._settings.fanout_followers_max

    def _get_oldest(self) -> PostId:
        return first_post_id(self._clock.time() - self._settings.days * DAY_S)

    async def _write(self, job: FanoutJob, users: Sequence[str]) -> None:
        ttl = job.created_ms // 1000 + self._settings.days * DAY_S
        entries = [(user, job.post_ref, ttl) for user in users]
        await self._social.timeline_rows.put_entries(entries, WRITES_IN_FLIGHT_MAX)
        metrics.TIMELINE_ROWS.inc(len(users))

    async def _signal_online(self, job: FanoutJob, users: Sequence[str]) -> None:
        if self._clock.time() - job.created_ms / 1000 > SIGNALS_S_MAX:
            return
        frame = codec.encode(PostSignal("post", job.post_ref.author, job.post_ref.post))
        names = [UserId(user) for user in users]
        for user, gateways in zip(
            names, await self._container.inboxes.list_gateways(names), strict=True
        ):
            if gateways:
                self._container.device_delivery.send_signal(user, frame, gateways)


async def run_timeline(container: StorageContainer, owner: str) -> None:
    """Process the jobs of all shards until cancelled.

    Raises:
        Unavailable: a data store became unavailable; start the worker again.
    """
    wake_up = PostWakeUp(container.hot)
    async with open_task_group() as group:
        group.create_task(wake_up.listen(), name="timeline-wake-up")
        for shard in range(SHARDS):
            worker = TimelineWorker(container, wake_up, shard, owner)
            group.create_task(worker.run(), name=f"timeline-{shard}")
