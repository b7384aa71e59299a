"""Exports of a user's data: content, limits, and a killed worker."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.integration.features.privacy.support import Person, Vault
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.features.privacy.fixtures"]
pytestmark = pytest.mark.asyncio(loop_scope="session")
NewPerson = Callable[[str], Person]


async def download(export: dict[str, Any]) -> tuple[httpx.Headers, zipfile.ZipFile]:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.get(export["url"])
    assert answer.status_code == 200, answer.text
    assert len(answer.content) == export["size"]
    return answer.headers, zipfile.ZipFile(io.BytesIO(answer.content))


def lines_of(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).splitlines()]


def today() -> datetime.date:
    """Return the UTC date by which exports are counted."""
    return datetime.datetime.now(datetime.UTC).date()


async def export_until_refused(person: Person) -> tuple[int, dict[str, Any]]:
    """Request exports until one is refused; return their number and the error."""
    headers = {"Authorization": f"Bearer {person.token}"}
    for made in range(10):
        answer = await person.client.post("/v1/me/export", headers=headers)
        if answer.status_code != 202:
            assert answer.status_code == 429, answer.text
            return made, answer.json()
        await person.wait_for_export()
    raise AssertionError("exports are not limited")


async def test_export_has_all_data_of_the_user_only(vault: Vault, new_person: NewPerson) -> None:
    """The export survives a kill of its worker. One at a time and three per day are allowed."""
    zoe, bob, began_on = new_person("zoe"), new_person("bob"), today()
    await zoe.register(name="Zoë", device="Zoë's phone")
    await bob.register()
    chat = await zoe.open_direct(bob.user)
    await bob.send(chat, "written by bob")
    await zoe.send(chat, "first")
    edited = await zoe.send(chat, "seconnd")
    await zoe.request("PATCH", f"/v1/chats/{chat}/messages/{edited}", 200, {"body": "second"})
    file = await zoe.upload(chat, b"a file", "..notes.txt")
    await zoe.send(chat, "with a file", attachments=[file])
    await zoe.request("PUT", f"/v1/chats/{chat}/messages/1/report", 204, {"reason": "rude"})

    draft = {"text": "not sent yet", "version": 1}
    await zoe.request("PATCH", f"/v1/chats/{chat}/preferences", 200, {"draft": draft})
    await zoe.request("PUT", "/v1/me/pinned-chats", 200, {"chats": [chat]})
    theirs = (await bob.request("POST", "/v1/me/posts", 201, {"content": "written by bob"}))["id"]
    await zoe.request("POST", "/v1/me/posts", 201, {"content": "post by zoe"})
    await zoe.request("PUT", f"/v1/users/{bob.user}/posts/{theirs}/like", 204)
    await zoe.request("PUT", f"/v1/me/following/{bob.user}", 204)
    await zoe.request("PUT", f"/v1/me/favorites/posts/{bob.user}/{theirs}", 204)
    await zoe.request("PUT", f"/v1/me/favorites/messages/{chat}/1", 204)

    await zoe.request("GET", "/v1/me/export", 404)
    once = {"Authorization": f"Bearer {zoe.token}", "Idempotency-Key": "once"}
    begun = await zoe.client.post("/v1/me/export", headers=once)
    same = await zoe.client.post("/v1/me/export", headers=once)
    other = await zoe.request("POST", "/v1/me/export", 409)
    killed = vault.start_worker("exports", failpoint="export.after_upload")
    await eventually(lambda: killed.process is None or killed.process.poll() is not None, 60)
    worker = vault.start_worker("exports")
    export = await zoe.wait_for_export()
    headers, archive = await download(export)
    objects = [key for key, _ in vault.iter_objects() if key.startswith("exports/")]
    made, refused = await export_until_refused(zoe)
    worker.stop()

    assert (begun.status_code, begun.json()["state"]) == (202, "waiting")
    assert same.json() == begun.json()
    assert other["code"] == "conflict"
    # Three per UTC day; three more if a new day began during the test.
    assert 1 + made == 3 or (today() != began_on and 1 + made <= 6)
    assert refused["retry_after_ms"] > 0
    assert (export["state"], export["progress"]) == ("ready", 100)
    assert headers["content-disposition"].startswith("attachment; ")
    sent = lines_of(archive, "messages.jsonl")
    assert [each["body"] for each in sent] == ["first", "second", "with a file"]
    assert b"written by bob" not in b"".join(archive.read(name) for name in archive.namelist())
    assert json.loads(archive.read("profile.json"))["name"] == "Zoë"
    assert json.loads(archive.read("profile.json"))["reports"][0]["reason"] == "rude"
    assert [each["name"] for each in lines_of(archive, "devices.jsonl")] == ["Zoë's phone"]
    assert [each["chat"] for each in lines_of(archive, "chats.jsonl")] == [chat]
    (preferences,) = lines_of(archive, "preferences.jsonl")
    assert (preferences["chat"], preferences["draft"]) == (chat, draft)
    assert json.loads(archive.read("profile.json"))["pinned_chats"] == [chat]
    (line,) = lines_of(archive, "attachments.jsonl")
    assert archive.read(line["file"]) == b"a file"
    assert line["file"] == f"attachments/{file}-notes.txt"
    assert json.loads(archive.read("profile.json"))["social"]["posts"] == 1
    saved = lines_of(archive, "favorites.jsonl")
    assert [(each.get("post"), each.get("seq")) for each in saved] == [(theirs, None), (None, 1)]
    assert [each["content"] for each in lines_of(archive, "posts.jsonl")] == ["post by zoe"]
    assert [each["user"] for each in lines_of(archive, "following.jsonl")] == [bob.user]
    assert lines_of(archive, "likes.jsonl") == [{"post": theirs, "of": bob.user}]
    assert "messages.jsonl" in archive.read("README.txt").decode()
    assert objects == [f"exports/{export['export']}.zip"]
