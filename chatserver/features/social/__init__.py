"""Social graph: profiles, follows, posts, likes and timelines.

Start with `model.py` and `service.py`. `timeline_worker.py` fans posts out to timelines,
`like_counter.py` counts likes, `hot.py` holds the Redis data and `warm/` the DynamoDB items.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="social",
    ports={
        "file_readers": "chatserver.features.social.container:file_readers",
        "follow_graph": "chatserver.features.social.container:follow_graph",
    },
)
