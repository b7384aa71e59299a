"""Settings of search."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from chatserver.config.section import Section


class Search(Section):
    """Full-text search. Use the same values in all processes."""

    index: str = Field(
        "",
        description="Folder of the index, if `worker search` and the API run on one machine; "
        "`s3`: keep the index in the bucket, for any number of machines (requires "
        "the `search` extra); unset: no search",
    )

    def list_needed_workers(self) -> list[str]:
        return ["search"] if self.index else []

    def list_plain_texts(self) -> Iterator[tuple[str, str]]:
        if self.index:
            yield (
                "the search index (search.index) has the words of messages in plain text, and for "
                "up to six hours those of deleted and expired messages",
                "unset CHAT_SEARCH_INDEX and delete the index if it must not have them",
            )
