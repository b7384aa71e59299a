"""Push notifications for members without a client in the foreground.

Start with `worker.py` (the background job) and `dispatcher.py` (recipients and content).
`providers/` holds Web Push, FCM and APNs, `hot.py` the Redis data and `warm/` the DynamoDB items.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="push",
    ports={"push_devices": "chatserver.features.push.container:push_devices"},
)
