"""Dependencies of the social graph."""

from __future__ import annotations

from functools import cached_property

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.warm import Attachments
from chatserver.features.social.hot import CountQueue, PostWakeUp
from chatserver.features.social.model import PostIds
from chatserver.features.social.service.favorites import Favorites
from chatserver.features.social.service.follows import Follows
from chatserver.features.social.service.pictures import SocialPictures, SpaceReaders
from chatserver.features.social.service.social import Social
from chatserver.features.social.service.timelines import MergedAuthors, TimelineBackfill, Timelines
from chatserver.features.social.settings import Timeline
from chatserver.features.social.warm.counts import SocialCounts
from chatserver.features.social.warm.fanouts import Fanouts
from chatserver.features.social.warm.favorites import SocialFavorites
from chatserver.features.social.warm.follow_edges import FollowEdges
from chatserver.features.social.warm.likes import SocialLikes
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.features.social.warm.profiles import SocialProfiles
from chatserver.features.social.warm.timelines import SocialTimelines


class SocialContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._client = core.dynamodb.for_feature("social")
        self.profiles = SocialProfiles(self._client)
        self.graph = FollowEdges(self._client)
        self.counts = SocialCounts(self._client)
        self.posts = SocialPosts(self._client)
        self.likes = SocialLikes(self._client)
        self.favorite_rows = SocialFavorites(self._client)
        self.timeline_rows = SocialTimelines(self._client)
        self.fanouts = Fanouts(self._client)
        self.queue = CountQueue(core.hot)
        self._merged = MergedAuthors(self.fanouts, core.settings.get(Timeline), core.clock)

    @cached_property
    def pictures(self) -> SocialPictures:
        attachments = self._core.get(AttachmentContainer)
        return SocialPictures(
            rows=Attachments(self._client),
            sendable=attachments.sendable,
            objects=attachments.objects,
            clock=self._core.clock,
        )

    @cached_property
    def social(self) -> Social:
        return Social(
            profiles=self.profiles,
            graph=self.graph,
            posts=self.posts,
            likes=self.likes,
            favorites=self.favorite_rows,
            queue=self.queue,
            block_policy=self._core.block_policy,
            pictures=self.pictures,
            wake_workers=PostWakeUp(self._core.hot).notify,
            can_see_profile=self._can_see_profile,
            clock=self._core.clock,
        )

    async def _can_see_profile(self, viewer: UserId, user: UserId) -> bool:
        if await self._core.presence_subscriptions.find_visible(viewer, [user]):
            return True
        return bool((await self._core.directory.get_user(user)).words)

    @cached_property
    def follows(self) -> Follows:
        return Follows(
            graph=self.graph,
            profiles=self.profiles,
            queue=self.queue,
            backfill=TimelineBackfill(
                timeline_rows=self.timeline_rows,
                posts=self.posts,
                merged=self._merged,
                settings=self._core.settings.get(Timeline),
            ),
            clock=self._core.clock,
        )

    @cached_property
    def favorites(self) -> Favorites:
        return Favorites(
            rows=self.favorite_rows,
            posts=self.posts,
            social=self.social,
            messages=self._core.message_context,
            block_policy=self._core.block_policy,
            ids=PostIds(self._core.clock),
        )

    @cached_property
    def timelines(self) -> Timelines:
        return Timelines(
            timeline_rows=self.timeline_rows,
            posts=self.posts,
            graph=self.graph,
            merged=self._merged,
            social=self.social,
            clock=self._core.clock,
        )


def follow_graph(core: StorageContainer) -> Follows:
    return core.get(SocialContainer).follows


def file_readers(core: StorageContainer) -> SpaceReaders:
    return SpaceReaders(core.members)
