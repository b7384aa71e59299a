"""How many tokens a text may be, without the tokenizer of any model.

An estimate that errs upwards: models cut English into pieces of four bytes or so, and a character
of three bytes, such as a Chinese one, into one or two.
"""

from __future__ import annotations

BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 4  # what marks who says it


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a message of this text is."""
    return TOKENS_PER_MESSAGE + -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def cut_to_tokens(text: str, tokens_max: int) -> str:
    """Return as much of the beginning as fits, in whole characters."""
    room = max(0, tokens_max - TOKENS_PER_MESSAGE) * BYTES_PER_TOKEN
    return text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
