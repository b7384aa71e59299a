"""The API's parts, put together without any store."""

from __future__ import annotations

from chatserver.config import Auth, Settings
from chatserver.domain.ids import ChatId, Seq
from tests.support.apiparts import open_offline_container


async def test_waits_to_be_stored_end_with_the_epoch_of_redis() -> None:
    """A seq of an old epoch may be another message in the next: no client gets `stored`."""
    told: list[str] = []
    settings = Settings(auth=Auth.model_validate({"secret": "0" * 32}))
    async with open_offline_container(settings) as container:
        container.stored_acks.add(
            ChatId("c1"), Seq(1), lambda: told.append("stored"), lambda: told.append("unknown")
        )

        for on_epoch in container.hot.on_epoch:
            on_epoch()
        container.stored_acks.reached(ChatId("c1"), Seq(1))

    assert told == ["unknown"]
