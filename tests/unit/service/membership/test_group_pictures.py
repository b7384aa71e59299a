"""Group pictures on a server without that feature."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest
from chatserver.service.membership.group_pictures import NO_GROUP_PICTURES


async def test_picture_without_the_feature_is_refused() -> None:
    """The error names the field; removing a picture is not an error."""
    with pytest.raises(BadRequest, match="picture"):
        await NO_GROUP_PICTURES.claim(UserId("alice"), ChatId("g-x"), "f-1")
    await NO_GROUP_PICTURES.release(ChatId("g-x"), "f-1")
