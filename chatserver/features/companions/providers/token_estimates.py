"""Token estimates, without the model's tokenizer.

Estimates tend to be too high: models split English text into tokens of about four bytes, and a
three-byte character (such as a Chinese one) into one or two tokens.
"""

from __future__ import annotations

BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 4  # added to each message, for the tokens that mark its role


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a message has."""
    return TOKENS_PER_MESSAGE + -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def cut_to_tokens(text: str, tokens_max: int) -> str:
    """Return the longest start of `text` with at most `tokens_max` tokens, in whole characters."""
    room = max(0, tokens_max - TOKENS_PER_MESSAGE) * BYTES_PER_TOKEN
    return text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
