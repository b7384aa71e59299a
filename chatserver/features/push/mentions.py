"""Mentions (``@user``) in a message. In a large group, only mentioned users get a push."""

from __future__ import annotations

import re

from chatserver.domain.ids import UserId

MENTIONS_MAX = 50

_MENTION = re.compile(r"(?<![A-Za-z0-9_@-])@([A-Za-z0-9_-]{1,64})")


def find_mentions(body: str) -> list[UserId]:
    """Return up to `MENTIONS_MAX` users mentioned as ``@user``, without duplicates."""
    mentions = dict.fromkeys(UserId(name) for name in _MENTION.findall(body))
    return list(mentions)[:MENTIONS_MAX]
