"""The API's container, without any store."""

from __future__ import annotations

from chatserver.config import Auth, Settings
from chatserver.domain.ids import ChatId, Seq
from tests.support.apiparts import open_offline_container


async def test_stored_waits_end_in_a_new_redis_epoch() -> None:
    """A seq may belong to another message in the next epoch, so the result is unknown."""
    results: list[str] = []
    settings = Settings(auth=Auth.model_validate({"secret": "0" * 32}))
    async with open_offline_container(settings) as container:
        container.stored_waits.add(
            ChatId("c1"),
            Seq(1),
            lambda: results.append("stored"),
            lambda: results.append("unknown"),
        )

        for on_epoch in container.hot.on_epoch:
            on_epoch()
        container.stored_waits.complete(ChatId("c1"), Seq(1))

    assert results == ["unknown"]
