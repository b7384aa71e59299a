"""Signals to followers."""

from __future__ import annotations

from typing import Literal

import msgspec

from chatserver.protocol.frames import ServerFrame


class PostSignal(ServerFrame, tag="signal", frozen=True, omit_defaults=False):
    """A followed user has published a post with the id `post`."""

    kind: Literal["post"]
    from_: str = msgspec.field(name="from")
    post: str
