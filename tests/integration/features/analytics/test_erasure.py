"""Erasure in the files of analytics: they match the other tiers afterwards."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from chatserver.container.storage_feature_ports import REWRITE_EXPORTED
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.privacy.container import PrivacyContainer
from tests.integration.features.analytics.support import RECENT_TS, Lake, texts_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_rewriting_a_chat_changes_only_its_files_and_only_once(lake: Lake) -> None:
    """One deletion is in the archive, one in DynamoDB. Unchanged files are not written again."""
    chat, other = await lake.open_direct(), await lake.open_direct()
    sent = chat.texts(60)
    await lake.put(*sent[:40])
    await lake.put(*other.texts(10))
    await lake.archive(chat, other)
    await lake.put(*sent[40:])
    await lake.export(with_warm=True)
    for seq, target in ((61, 1), (62, 60)):
        entry = chat.text(seq, kind="delete", body="", target=target, ts=RECENT_TS + seq)
        await lake.change(sent[target - 1], entry)
    await lake.archive(chat)
    rewrite = lake.container.get_port(REWRITE_EXPORTED)

    first, again = await rewrite([chat.id]), await rewrite([chat.id, other.id])

    assert (first, again) == (1, 0)
    assert [row["seq"] for row in lake.rows(chat) if row["is_deleted"]] == [1, 60]
    assert lake.seqs(chat) == list(range(1, 61))
    assert not {"text 1 ⟨é⟩", "text 60 ⟨é⟩"} & set(texts_of(lake.rows(chat)))


async def test_erased_user_is_removed_from_the_receivers(lake: Lake) -> None:
    """Messages from the other user remain, without the erased user's id."""
    chat, _ = await lake.export_chat(4)
    before = [row["receiver"] for row in lake.rows(chat)]
    await erase_account(lake, chat.b)

    files = await lake.container.get_port(REWRITE_EXPORTED)([chat.id])

    assert before == [chat.b, chat.a, chat.b, chat.a]
    assert files == 1
    assert [row["receiver"] for row in lake.rows(chat)] == [None, chat.a, None, chat.a]
    everything = await lake.export(is_all=True)
    assert everything.files == 0  # a later export does not restore the id


async def erase_account(lake: Lake, user: UserId) -> None:
    """Replace a user's row with the tombstone of an erasure."""
    await lake.container.get(PrivacyContainer).privacy.erase(user)
    found = await lake.container.get(AccountContainer).rows.find_user(user)
    assert found is not None
    assert found.erased_ms is not None


async def test_write_conflicts_are_retried_and_end_in_an_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure must not be confirmed while files still contain the text."""
    chat, sent = await lake.export_chat(3)
    entry = chat.text(4, kind="delete", body="", target=1, ts=RECENT_TS)
    await lake.change(sent[0], entry)
    await lake.archive(chat)
    rewrite = lake.container.get_port(REWRITE_EXPORTED)
    attempts = 0
    put = ParquetFiles.put

    async def put_with_stale_etag(self: Any, key: str, data: bytes, etag: str | None) -> None:
        nonlocal attempts
        attempts += 1
        await put(self, key, data, '"of another version"')

    with monkeypatch.context() as patch:
        patch.setattr(ParquetFiles, "put", put_with_stale_etag)
        with pytest.raises(Unavailable, match="cannot be written now; try again"):
            await rewrite([chat.id])
    before = [row["is_deleted"] for row in lake.rows(chat)]
    files = await rewrite([chat.id])

    assert attempts == 20
    assert before == [False] * 3
    assert files == 1
    assert [row["is_deleted"] for row in lake.rows(chat)] == [True, False, False]


async def test_erasure_without_pyarrow_fails_only_if_files_must_change(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without pyarrow can erase users of chats that were never exported."""
    (exported, sent), never = await lake.export_chat(3), await lake.open_direct()
    entry = exported.text(4, kind="delete", body="", target=1, ts=RECENT_TS)
    await lake.change(sent[0], entry)
    await lake.archive(exported)
    rewrite = lake.container.get_port(REWRITE_EXPORTED)
    find_spec = importlib.util.find_spec

    def find_without_extra(name: str, package: str | None = None) -> Any:
        return None if name == "pyarrow" else find_spec(name, package)

    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", find_without_extra)
        with pytest.raises(Unavailable, match=r"pip install '\.\[analytics\]'"):
            await rewrite([exported.id])
        nothing = await rewrite([never.id])

    assert nothing == 0
    assert await rewrite([exported.id]) == 1
