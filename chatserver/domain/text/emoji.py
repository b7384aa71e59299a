"""Emoji of reactions: the grammar of Unicode TR 51, and one form for each emoji."""

from __future__ import annotations

import re

from chatserver.errors import BadRequest, TooLarge

# Maximum code points of an emoji; the longest in use has 10: a couple with two skin tones.
EMOJI_CHARS_MAX = 16

# One emoji: section 1.4.9. Characters are matched by block, so that emoji newer than this table are
# accepted; keycaps (1️⃣) and flags are listed explicitly.
_CHAR = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa"
    "\U0001f400-\U0001faff]"
)
_PART = (
    f"(?:[\U0001f1e6-\U0001f1ff]{{2}}|{_CHAR}"
    "(?:\ufe0f?[\U0001f3fb-\U0001f3ff]|[\ufe0e\ufe0f]|[\U000e0020-\U000e007e]+\U000e007f)?)"
)
_EMOJI = re.compile(f"{_PART}(?:\u200d{_PART})*|[0-9#*][\ufe0e\ufe0f]?\u20e3")
_VARIATION_SELECTORS = re.compile("[\ufe0e\ufe0f]")
# Characters that are shown as text without a variation selector: those without the property
# Emoji_Presentation, if no skin tone follows.
_TEXT_BY_DEFAULT = re.compile(
    "([0-9#*\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u2328\u23cf\u23ed-\u23ef\u23f1\u23f2"
    "\u23f8-\u23fa\u24c2\u25aa-\u25fc\u2600-\u2613\u2616-\u2647\u2654-\u267e\u2680-\u2692"
    "\u2694-\u26a0\u26a2-\u26a9\u26ac-\u26bc\u26bf-\u26c3\u26c6-\u26cd\u26cf-\u26d3\u26d5-\u26e9"
    "\u26eb-\u26f1\u26f4\u26f6-\u26f9\u26fb\u26fc\u26fe-\u2704\u2706-\u2709\u270c-\u2727"
    "\u2729-\u274b\u274d\u274f-\u2752\u2756\u2758-\u2794\u2798-\u27af\u27b1-\u27be\u2934\u2935"
    "\u2b05-\u2b1a\u2b1d-\u2b4f\u2b51-\u2b54\u3030\u303d\u3297\u3299"
    "\U0001f170\U0001f171\U0001f17e\U0001f17f\U0001f202\U0001f237\U0001f321"
    "\U0001f324-\U0001f32c\U0001f336\U0001f37d\U0001f396\U0001f397\U0001f399-\U0001f39b\U0001f39e"
    "\U0001f39f\U0001f3cb-\U0001f3ce\U0001f3d4-\U0001f3df\U0001f3f3\U0001f3f5\U0001f3f7\U0001f43f"
    "\U0001f441\U0001f4fd\U0001f549\U0001f54a\U0001f56f\U0001f570\U0001f573-\U0001f579\U0001f587"
    "\U0001f58a-\U0001f58d\U0001f590\U0001f5a5\U0001f5a8\U0001f5b1\U0001f5b2\U0001f5bc"
    "\U0001f5c2-\U0001f5c4\U0001f5d1-\U0001f5d3\U0001f5dc-\U0001f5de\U0001f5e1\U0001f5e3\U0001f5e8"
    "\U0001f5ef\U0001f5f3\U0001f5fa\U0001f6cb\U0001f6cd-\U0001f6cf\U0001f6e0-\U0001f6e5\U0001f6e9"
    "\U0001f6f0\U0001f6f3])(?![\U0001f3fb-\U0001f3ff])"
)


def parse_emoji(text: str) -> str:
    """Return the emoji of a reaction in one form; an empty string removes the reaction.

    Keyboards send the same emoji with or without variation selectors (❤️ and ❤). The result has
    them exactly where the emoji would be shown as text without them. Skin tones are kept.

    Raises:
        BadRequest: the text is not exactly one emoji.
        TooLarge: the text has more than 16 code points.
    """
    if len(text) > EMOJI_CHARS_MAX:
        raise TooLarge(f"emoji: must be at most {EMOJI_CHARS_MAX} code points")
    if text and _EMOJI.fullmatch(text) is None:
        raise BadRequest("emoji: must be one emoji, such as 👍")
    return _TEXT_BY_DEFAULT.sub("\\1\ufe0f", _VARIATION_SELECTORS.sub("", text))
