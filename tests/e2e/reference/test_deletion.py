"""Deletion from all stores: a user is erased, then a tenant is deleted; all bytes are searched.

Redis, DynamoDB, S3 (archive, bodies, files, exports, Parquet), the search index, and the logs of
the processes. All workers run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from tests.e2e.reference.deployments import (
    Deployment,
    find_marks,
    new_mark,
    open_deployment,
    wait_for_all_tiers,
)
from tests.e2e.reference.support import PASSWORD, Server, User, wait_for

ERASURE_S = 300.0  # on a slow machine an interrupted step is retried after its lease expires
# Stores that contain the user's texts before the erasure, without and with encryption. Redis is
# listed separately.
PLAIN = {
    "dynamodb chat_chat_session", "dynamodb chat_directory", "dynamodb chat_messages",
    "dynamodb chat_social", "index", "s3 analytics", "s3 archive", "s3 attachments", "s3 exports",
}  # fmt: skip
ENCRYPTED = PLAIN - {
    "dynamodb chat_chat_session", "dynamodb chat_messages", "s3 analytics", "s3 archive",
}  # fmt: skip
# Stores that must not contain the id of an erased user. The id may remain in the tombstone and at
# the positions of messages: docs/privacy.md, "Data that remains".
WITHOUT_ID = {"dynamodb chat_chat_session", "index", "s3 analytics", "s3 attachments", "s3 exports"}


def use_everything(deployment: Deployment, ann: User, ben: User, word: str) -> dict[str, str]:
    """Write a word as ann into every field that a user can set; return the ids of the chats."""
    login = {"user": ann.id, "password": PASSWORD, "device": f"device {word}"}
    deployment.public.post("/v1/auth/login", login)
    ann.patch("/v1/me", {"name": f"Ann {word}", "about": f"about {word}"})
    ann.post("/v1/me/push-subscriptions", {"token": f"token-{word}"})
    theirs = ben.post("/v1/me/posts", {"content": "ben posts"})["id"]
    chats = {"direct": ann.open_direct(ben), "group": ann.create_group(ben)}
    for chat in chats.values():
        bens = ben.send(chat, "sent by ben")
        ann.put(f"/v1/chats/{chat}/messages/{bens['seq']}/report", {"reason": f"why {word}"})
        ann.put(f"/v1/me/favorites/messages/{chat}/{bens['seq']}")
        first = ann.send(chat, f"first {word}")
        ann.patch(f"/v1/chats/{chat}/messages/{first['seq']}", {"body": f"edited {word}"})
        ann.put(f"/v1/chats/{chat}/pins/{first['seq']}")
        ben.put(f"/v1/me/favorites/messages/{chat}/{first['seq']}")
        file = deployment.upload(ann, chat, f"content {word}".encode(), f"file {word}.txt")
        ann.send(chat, f"with a file {word}", attachments=[file])
        ann.send(chat, f"long {word} " * 100)
        ann.send(chat, f"for a while {word}", expires_s=3600)
        draft = {"text": f"draft {word}", "version": 1}
        ann.patch(f"/v1/chats/{chat}/preferences", {"draft": draft})
    ann.put("/v1/me/pinned-chats", {"chats": list(chats.values())})
    deployment.upload(ann, chats["direct"], f"unsent {word}".encode(), f"unsent {word}.txt")
    first_key, second_key = {"Idempotency-Key": "once"}, {"Idempotency-Key": "again"}
    path, sent = f"/v1/chats/{chats['direct']}/messages", {"body": f"once {word}"}
    assert ann.call("POST", path, sent, headers=first_key).is_success
    post = {"content": f"post {word}"}
    mine = ann.call("POST", "/v1/me/posts", post, headers=second_key).json()["id"]
    ann.patch(f"/v1/me/posts/{mine}", {"content": f"edited {word}"})
    ann.put(f"/v1/me/following/{ben.id}")
    ben.put(f"/v1/me/following/{ann.id}")
    for user, author, liked in ((ben, ann, mine), (ann, ben, theirs)):
        user.put(f"/v1/users/{author.id}/posts/{liked}/like")
        user.put(f"/v1/me/favorites/posts/{author.id}/{liked}")
    chats["companion"] = _use_companion(deployment, ann, word)
    with ann.connect(device=f"device-{word}") as device:
        sent = device.request(
            "send", chat=chats["group"], ref=f"ref-{word[:4]}", body=f"socket {word}"
        )
        assert sent["type"] == "ack", sent
        device.request("mark", chat=chats["group"], read=1)
        assert device.request("chats", limit=10)["type"] == "page"
    return chats


def _use_companion(deployment: Deployment, ann: User, word: str) -> str:
    """Let a companion respond and remember the word; return the chat of the ended session."""
    companion = deployment.add_companion("memory")
    session = str(ann.post(f"/v1/companions/{companion}/session")["chat"]["chat"])
    ann.send(session, f"My name is {word}")
    messages = f"/v1/chats/{session}/messages"
    wait_for(lambda: len(ann.get(messages)["messages"]) > 1, "the companion answers")
    ann.post(f"/v1/companions/{companion}/session/renewal")
    memory = f"/v1/me/companions/{companion}/memory"
    wait_for(lambda: word in json.dumps(ann.get(memory)), "the companion remembers")
    return session


def kinds_of(places: list[str]) -> set[str]:
    """Return the kinds of stores, such as `redis log` or `s3 archive`."""
    kinds = set()
    for place in places:
        store, _, name = place.partition(" ")
        match store:
            case "redis":
                kinds.add(f"redis {name.split(':')[1]}")
            case "s3":
                kinds.add(f"s3 {name.split('/')[1]}")
            case "index":
                kinds.add("index")
            case _:
                kinds.add(place)
    return kinds


def find_in_logs(deployment: Deployment, word: str) -> list[str]:
    """Return the logs of the processes that contain a word."""
    return [log.name for log in deployment.logs if word.encode() in log.read_bytes()]


def encrypt(server: Server, folder: Path) -> Mapping[str, str]:
    """Return the settings of a deployment that encrypts bodies."""
    keys = folder / "keys"
    keys.write_text(server.command("encryption", "new-key"))
    return {
        "CHAT_ENCRYPTION_PROVIDER": "file",
        "CHAT_ENCRYPTION_KEY_FILE": str(keys),
        "CHAT_ANALYTICS_EXPORT": "metadata",  # texts cannot be exported with encryption
    }


@pytest.mark.timeout(1200)  # an erasure and a deletion wait for late writes
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
def test_erased_user_and_deleted_tenant_are_found_in_no_store(
    server: Server, tmp_path: Path, is_encrypted: bool
) -> None:
    """No store has texts of an erased user or data of a deleted tenant.

    The id of the erased user remains only in the documented places, until the tenant is deleted.
    """
    word, mark = new_mark(), new_mark()
    tenant, number = ("umbrella", 6) if is_encrypted else ("wayne", 7)
    index = tmp_path / "search"
    settings = dict(encrypt(server, tmp_path)) if is_encrypted else {}
    with open_deployment(
        server, tenant, number, tmp_path, CHAT_SEARCH_INDEX=str(index), **settings
    ) as deployment:

        def find(*marks: str) -> list[str]:
            return find_marks(server, [deployment.database], marks, [index])

        ann, ben = deployment.add_user("ann"), deployment.add_user(f"ben-{mark}")
        chats = use_everything(deployment, ann, ben, word)
        late = ben.send(chats["group"], f"sent by ben {mark}")
        wait_for(lambda: ann.get("/v1/search", q=word)["items"], "the messages are indexed")
        wait_for_all_tiers(deployment)
        ann.post("/v1/me/export")
        wait_for(lambda: ann.get("/v1/me/export")["state"] == "ready", "the export is ready")
        found = kinds_of(find(word))
        assert found >= (ENCRYPTED if is_encrypted else PLAIN)
        assert any(kind.startswith("redis ") for kind in found)

        receipt = ann.call("DELETE", "/v1/me", {"password": PASSWORD}).json()["receipt"]
        wait_for(
            lambda: deployment.public.get(f"/v1/erasures/{receipt}")["state"] == "done",
            "the user is erased",
            ERASURE_S,
        )

        assert find(word) == []
        assert find_in_logs(deployment, word) == []
        remaining = find(ann.id)
        assert not kinds_of(remaining) & WITHOUT_ID
        own = tuple(f":{key}:{ann.id}" for key in ("box", "inbox", "hidden", "seen", "large"))
        assert [key for key in remaining if key.endswith(own)] == []
        assert ben.get("/v1/search", q=word)["items"] == []
        texts = [
            each["body"] for each in ben.get(f"/v1/chats/{chats['group']}/messages")["messages"]
        ]
        assert [text for text in texts if text] == ["sent by ben", f"sent by ben {mark}"]
        assert texts[late["seq"] - 1] == f"sent by ben {mark}", "the position must remain"

        done = deployment.run("tenants", "delete", tenant, "--confirm", tenant)

        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["left"] == 0
        assert find(word, mark, ann.id, ben.id, *chats.values()) == []
        assert deployment.objects_of() == []
        assert [item.keys() for _, item in deployment.iter_items()] == [{"PK", "SK", "blocked"}]
        assert set(deployment.database.keys()) == {b"{p0}:epoch"}
        assert [file for file in index.rglob("*") if file.is_file()] == []
        refused = deployment.public.call(
            "POST", "/v1/auth/login", {"user": ben.id, "password": "x"}
        )
        assert refused.status_code == httpx.codes.FORBIDDEN
