"""Group pictures, which owners and admins set with `update_chat`.

A picture is uploaded like an avatar, to the private space of the user who sets it
(`chatserver.features.social.service.pictures`). The group's item stores the attachment id. The file
is deleted when the group gets another picture, or when the account of that user is deleted.
"""

from chatserver.features.registry import Feature

FEATURE = Feature(
    name="group_pictures",
    requires=("attachments", "social"),
    routes=("chatserver.features.group_pictures.routes:build_group_pictures_routes",),
    ports={"group_pictures": "chatserver.features.group_pictures.container:group_pictures"},
)
