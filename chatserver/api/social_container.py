"""Dependency wiring of the social graph; see `chatserver.api.container`."""

from __future__ import annotations

import dataclasses

from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.features.attachments.cold import Files
from chatserver.features.attachments.hot import SendableFiles
from chatserver.features.attachments.warm import Attachments
from chatserver.features.social.hot import LikeQueue, PostWakeUp
from chatserver.features.social.service.pictures import SocialFiles
from chatserver.features.social.service.social import Rows, Social
from chatserver.features.social.service.timelines import Timelines
from chatserver.features.social.warm.fanouts import Fanouts
from chatserver.features.social.warm.graph import SocialGraph
from chatserver.features.social.warm.likes import SocialLikes
from chatserver.features.social.warm.posts import SocialPosts
from chatserver.features.social.warm.profiles import SocialProfiles
from chatserver.features.social.warm.timelines import SocialTimelines
from chatserver.hot.redis.client import HotClient
from chatserver.service.moderation.block_policy import BlockPolicy
from chatserver.warm.dynamo.client import DynamoClient


@dataclasses.dataclass(frozen=True, slots=True)
class SocialApi:
    """Use cases of the social graph."""

    graph: Social
    timelines: Timelines


def make_social(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    client: DynamoClient,
    graph: SocialGraph,
    block_policy: BlockPolicy,
    objects: Files,
    sendable: SendableFiles,
) -> SocialApi:
    """Build the use cases."""
    warm = settings.warm
    posts = SocialPosts(client, warm)

    social = Social(
        rows=Rows(SocialProfiles(client, warm), graph, posts, SocialLikes(client, warm)),
        queue=LikeQueue(hot),
        block_policy=block_policy,
        pictures=SocialFiles(
            rows=Attachments(client, warm),
            sendable=sendable,
            objects=objects,
            clock=clock,
        ),
        wake_workers=PostWakeUp(hot).notify,
        clock=clock,
    )
    timelines = Timelines(
        lines=SocialTimelines(client, warm),
        posts=posts,
        graph=graph,
        merged=Fanouts(client, warm),
        social=social,
        settings=settings.timeline,
        clock=clock,
    )
    return SocialApi(social, timelines)
