"""The part of the API's composition that is about the social graph; see `chatserver.api.parts`."""

from __future__ import annotations

import dataclasses

from chatserver.cold.attachments import Files
from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.hot.client import HotClient
from chatserver.hot.files import SendableFiles
from chatserver.hot.likes import LikeQueue, PostBell
from chatserver.service.apartness import Apartness
from chatserver.service.social import Rows, Social
from chatserver.service.socialfiles import SocialFiles
from chatserver.service.timelines import Timelines
from chatserver.warm.attachments import Attachments
from chatserver.warm.client import DynamoClient
from chatserver.warm.fanouts import Fanouts
from chatserver.warm.social_graph import SocialGraph
from chatserver.warm.social_likes import SocialLikes
from chatserver.warm.social_posts import SocialPosts
from chatserver.warm.social_profiles import SocialProfiles
from chatserver.warm.social_timelines import SocialTimelines


@dataclasses.dataclass(frozen=True, slots=True)
class SocialApi:
    """The use cases."""

    graph: Social
    timelines: Timelines


def make_social(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    client: DynamoClient,
    graph: SocialGraph,
    apart: Apartness,
    objects: Files,
    sendable: SendableFiles,
) -> SocialApi:
    """Put the use cases together."""
    warm = settings.warm
    posts = SocialPosts(client, warm)

    social = Social(
        Rows(SocialProfiles(client, warm), graph, posts, SocialLikes(client, warm)),
        LikeQueue(hot, settings.counters.queue_max),
        apart,
        SocialFiles(Attachments(client, warm), sendable, objects, settings.attachments, clock),
        PostBell(hot).ring,
        clock,
    )
    timelines = Timelines(
        SocialTimelines(client, warm),
        posts,
        graph,
        Fanouts(client, warm),
        social,
        settings.timeline,
        clock,
    )
    return SocialApi(social, timelines)
