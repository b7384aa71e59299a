"""Search over WebSocket: gateways call `worker search`, because they cannot read the index."""

from __future__ import annotations

import msgspec

from chatserver.container import feature_ports
from chatserver.container.gateway import GatewayContainer
from chatserver.domain.ids import UserId
from chatserver.errors import NotFound
from chatserver.features.search.model import DISABLED
from chatserver.protocol import frames


def answer_frame(core: GatewayContainer) -> feature_ports.AnswerSearchFrame:
    async def answer(user: UserId, frame: frames.Search) -> msgspec.Struct:
        if not core.settings.search.index:
            raise NotFound(DISABLED)
        page = await core.warm.find_messages(user, frame)
        results = [msgspec.Raw(result) for result in page.results]
        return frames.SearchPage(frame.id, results, page.next is not None, page.next)

    return answer
