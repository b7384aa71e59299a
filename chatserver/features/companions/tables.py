"""DynamoDB attributes of AI companions, in table `directory`."""

from __future__ import annotations

from typing import Final

from chatserver.warm.schema.tables import DirectoryField


class CompanionField:
    """Attributes of companion versions, in `directory`."""

    NAME: Final = "name"
    VERSION: Final = "version"
    CREATED: Final = "created"  # milliseconds since 1970
    PROMPT: Final = "prompt"
    PROVIDER: Final = "provider"  # bedrock, openai or scripted
    MODEL: Final = "model"
    CONTEXT_TOKENS: Final = "context_tokens"
    ANSWER_TOKENS: Final = "answer_tokens"
    OPTIONS: Final = "options"  # JSON


class SummaryField:
    """Attributes of companion session summaries, in `directory`."""

    PK: Final = "PK"
    SK: Final = "SK"
    FIRST: Final = "first"  # chat seq: the first message that the summary covers
    UPTO: Final = "upto"  # chat seq: the last message that the summary covers
    TEXT: Final = DirectoryField.TEXT
    REV: Final = "rev"  # 1, 2, 3 …: each write requires the previous revision
    EXPIRES_AT: Final = "expires_at"  # seconds since 1970: TTL of the first message that expires
