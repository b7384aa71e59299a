"""Token estimates without a model's tokenizer.

The estimate errs upward: models split English into tokens of about four bytes, and a three-byte
character, such as a Chinese one, into one or two tokens.
"""

from __future__ import annotations

BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 4  # role markers


def estimate_tokens(text: str) -> int:
    """Return the estimated number of tokens of a message."""
    return TOKENS_PER_MESSAGE + -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def cut_to_tokens(text: str, tokens_max: int) -> str:
    """Return the longest prefix of at most `tokens_max` tokens, without splitting characters."""
    room = max(0, tokens_max - TOKENS_PER_MESSAGE) * BYTES_PER_TOKEN
    return text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
