"""Pictures of groups, set with `update_chat` by owners and admins.

A picture is uploaded like an avatar, to the private space of the user who sets it
(`chatserver.features.social.service.pictures`). The group's item has its id. The file is kept while
it is the picture of the group, and deleted with the account of that user.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="group_pictures",
    requires=("attachments", "social"),
    routes=("chatserver.features.group_pictures.routes:group_pictures_routes",),
    ports={"group_pictures": "chatserver.features.group_pictures.container:group_pictures"},
)
