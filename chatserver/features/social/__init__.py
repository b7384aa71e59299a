"""Social graph: profiles, follows, posts, likes and timelines.

Start with `model.py` and `service/social.py`. `worker/timeline_fanout.py` fans posts out to
timelines, `worker/counters.py` counts likes and follows, `hot.py` holds the Redis data, and `warm/`
holds the DynamoDB items.
"""

from chatserver.features.registry import Feature, Worker

FEATURE = Feature(
    name="social",
    requests="chatserver.features.social.requests",
    requires=("attachments",),
    routes=(
        "chatserver.features.social.routes:build_social_people_routes",
        "chatserver.features.social.routes:build_social_posts_routes",
        "chatserver.features.social.favorite_routes:build_favorite_routes",
    ),
    workers={
        "counters": Worker(
            "chatserver.features.social.worker.counters:run_counters",
            "counts likes and follows in batches",
        ),
        "timeline": Worker(
            "chatserver.features.social.worker.timeline_fanout:run_timeline",
            "adds posts to the timelines of followers",
        ),
    },
    ports={
        "file_readers": "chatserver.features.social.container:file_readers",
        "follow_graph": "chatserver.features.social.container:follow_graph",
    },
)
