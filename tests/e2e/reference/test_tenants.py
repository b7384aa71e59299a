"""Tenants on shared tables and a shared bucket: measuring, exporting, deleting and restoring."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close

from tests.e2e.reference.deployments import (
    Deployment,
    TenantData,
    create_data,
    find_marks,
    new_mark,
    open_deployment,
    wait_for_all_tiers,
)
from tests.e2e.reference.support import DEADLINE_S, PASSWORD, Client, Server, User, wait_for

# The deletion is killed at these points in this order. Each run continues the previous one.
FAILPOINTS = (
    "tenants.delete.recorded",
    "tenants.block.schema",
    "tenants.block.redis",
    "tenants.delete.waited",
    "tenants.delete.redis",
    "tenants.delete.done.redis",
    "tenants.delete.messages",
    "tenants.delete.done.messages",
    "tenants.delete.chat_session",
    "tenants.delete.social",
    "tenants.delete.directory",
    "tenants.delete.done.directory",
    "tenants.delete.objects",
    "tenants.delete.done.objects",
    "tenants.delete.done.rules",
    "tenants.delete.settling",
    "tenants.delete.checked",
    "tenants.delete.finishing",
)


class Listener:
    """Reads a device's frames until its connection is closed."""

    def __init__(self, data: TenantData) -> None:
        self._data = data
        self.closed: Close | None = None
        self._thread = threading.Thread(target=self._run, name="listener")

    @contextlib.contextmanager
    def running(self) -> Iterator[Listener]:
        self._thread.start()
        yield self
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        with self._data.ben.connect() as device:
            try:
                device.wait_for(type="nothing")
            except ConnectionClosed as exc:
                self.closed = exc.rcvd


class Sender:
    """Sends messages continuously until the server refuses them permanently."""

    def __init__(self, data: TenantData, mark: str) -> None:
        self._data = data
        self._mark = mark
        self.refusal: dict[str, Any] = {}
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="sender")
        self._stop = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[Sender]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        path = f"/v1/chats/{self._data.group}/messages"
        while not self._stop.is_set() and not self.refusal:
            # Every second body is long enough for S3.
            body = f"late {self._mark} " * (self.sent % 2 * 100 + 1)
            response = self._data.ann.call("POST", path, {"body": body})
            if response.is_success:
                self.sent += 1
            elif response.status_code == httpx.codes.FORBIDDEN:
                self.refusal = response.json()


def is_archived(deployment: Deployment) -> bool:
    """Return whether the archive has all messages, except those that expire."""
    return all(
        "ttl" in item or item["chatid"]["S"].endswith("#gone")
        for table, item in deployment.iter_items()
        if table == "chat_messages"
    )


def snapshot(deployment: Deployment) -> tuple[list[str], dict[str, int]]:
    """Return the messages of a tenant, and its objects with their sizes."""
    messages = sorted(
        json.dumps(item, sort_keys=True)
        for table, item in deployment.iter_items()
        if table == "chat_messages"
    )
    return messages, {
        key: len(deployment.read_object(f"{deployment.tenant}/{key}"))
        for key in deployment.objects_of()
    }


def history(user: Client, chat: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    before: dict[str, int] = {}
    while True:
        page = user.get(f"/v1/chats/{chat}/messages", **before)["messages"]
        if not page:
            return sorted(found)
        found += [(each["seq"], each.get("body", "")) for each in page]
        before = {"before": min(each["seq"] for each in page)}


def try_export(deployment: Deployment, folder: str) -> bool:
    """Export a tenant; return False if some messages are not in DynamoDB yet."""
    done = deployment.run("tenants", "export", deployment.tenant, "--to", folder)
    assert done.returncode == 0 or "not in DynamoDB yet" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.timeout(1200)  # two dozen commands, each in a process
def test_tenant_deletion_killed_at_any_step_leaves_no_data(server: Server, tmp_path: Path) -> None:
    """Sessions are closed, writes are refused, and no store has data of the tenant afterwards.

    The other tenant of the same tables and bucket keeps all of its data.
    """
    mark, others = new_mark(), new_mark()
    with (
        open_deployment(server, "acme-1", 2, tmp_path) as acme,
        open_deployment(server, "globex-1", 3, tmp_path) as globex,
    ):
        data, other = create_data(acme, mark), create_data(globex, others)
        wait_for_all_tiers(acme)
        wait_for_all_tiers(globex)
        wait_for(lambda: is_archived(globex), "the messages are archived")
        databases = [acme.database, globex.database]
        places = find_marks(server, databases, data.marks)
        kinds = {place.split("/")[1] if place.startswith("s3") else place for place in places}
        kept, kept_history = snapshot(globex), history(other.ann, other.group)
        assert kinds >= {"analytics", "archive", "attachments"}
        assert kinds >= {f"dynamodb chat_{t}" for t in ("messages", "directory", "social")}
        assert acme.run("tenants", "audit", "acme-1").returncode == 1
        wrong = acme.run("tenants", "delete", "acme-1", "--confirm", "acme")
        assert wrong.returncode == 2
        stranger = globex.run("tenants", "delete", "acme-1", "--confirm", "acme-1")
        assert stranger.returncode == 2
        assert "belongs to tenant globex-1" in stranger.stderr

        delete = ("tenants", "delete", "acme-1", "--confirm", "acme-1")
        with Listener(data).running() as listener, Sender(data, mark).running() as sender:
            wait_for(lambda: sender.sent > 3, "messages are sent")
            for failpoint in FAILPOINTS:
                acme.run_killed(failpoint, *delete)
            wait_for(lambda: sender.refusal, "messages are refused")
        done = acme.run(*delete)
        assert done.returncode == 0, done.stderr
        receipt = json.loads(done.stdout)

        assert listener.closed is not None
        assert listener.closed.code == 3504
        assert "tenant acme-1 is blocked" in listener.closed.reason
        assert sender.refusal["code"] == "forbidden"
        assert "tenant acme-1 is blocked" in sender.refusal["detail"]
        with pytest.raises(InvalidStatus) as refused, data.ann.connect():
            pass
        assert refused.value.response.status_code == 403
        assert find_marks(server, databases, data.marks) == []
        assert acme.objects_of() == []
        assert [item.keys() for _, item in acme.iter_items()] == [{"PK", "SK", "blocked"}]
        assert set(acme.database.keys()) == {b"{p0}:epoch"}
        audited = acme.run("tenants", "audit", "acme-1", "--contents", "--find", mark)
        assert audited.returncode == 0, audited.stdout
        assert receipt["left"] == 0
        assert not any(text in done.stdout for text in data.marks)
        assert json.loads(acme.command("tenants", "receipt", "acme-1")) == receipt
        for command in (("worker", "all"), ("tables", "apply")):
            late = acme.run(*command)
            assert late.returncode == 2
            assert "tenant acme-1 is blocked: it was deleted at" in late.stderr

        assert find_marks(server, databases, other.marks) != []
        assert history(other.ann, other.group) == kept_history
        assert snapshot(globex)[0] == kept[0]
        assert set(snapshot(globex)[1]) >= set(kept[1])
        globex_later = other.ben.send(other.direct, f"still here {others}")
        assert (globex_later["seq"], f"still here {others}") in history(other.ann, other.direct)


def test_restored_tenant_has_accounts_history_members_and_files(
    server: Server, tmp_path: Path
) -> None:
    """After export, deletion and restore, users log in and read their data."""
    mark, folder = new_mark(), str(tmp_path / "export")
    with open_deployment(server, "initech", 4, tmp_path) as initech:
        data = create_data(initech, mark)
        wait_for_all_tiers(initech)
        before = {chat: history(data.ann, chat) for chat in (data.direct, data.group)}
        pinned = data.ann.pins(data.group)
        wait_for(lambda: try_export(initech, folder), "all messages are in DynamoDB")
        verify = ("tenants", "export", "initech", "--to", folder, "--verify")
        assert "complete and unchanged" in initech.command(*verify)
        initech.command("tenants", "delete", "initech", "--confirm", "initech")
        assert find_marks(server, [initech.database], data.marks) == []
        initech.stop()

        initech.command("tenants", "restore", "initech", "--from", folder)
        initech.start(tmp_path)

        login = {"user": data.ann.id, "password": PASSWORD}
        ann = User(initech.addresses, initech.public.post("/v1/auth/login", login))
        assert {chat: history(ann, chat) for chat in (data.direct, data.group)} == before
        assert ann.pins(data.group) == pinned
        members = {each["user"] for each in ann.pages(f"/v1/chats/{data.group}/members")}
        assert members == {data.ann.id, data.ben.id}
        with_files = ann.pages(f"/v1/chats/{data.direct}/messages/with-files")
        assert with_files
        file, seq = with_files[0]["attachments"][0]["id"], with_files[0]["seq"]
        link = ann.get(f"/v1/attachments/{file}/link", seq=seq)
        assert initech.download(link["url"]) == f"content {mark}".encode()
        after = ann.send(data.group, f"after the restore {mark}")
        assert after["seq"] == max(seq for seq, _ in before[data.group]) + 1


def test_tenants_are_listed_measured_and_blocked(server: Server, tmp_path: Path) -> None:
    """An operator reads the usage of each tenant and blocks one of them temporarily."""
    mark = new_mark()
    with open_deployment(server, "hooli", 5, tmp_path) as hooli:
        ann, ben = hooli.add_user(f"ann-{mark}"), hooli.add_user(f"ben-{mark}")
        chat = ann.open_direct(ben)
        ann.send(chat, f"text {mark}")

        listed = map(json.loads, hooli.command("tenants", "list", "--json").splitlines())
        (measured,) = json.loads(hooli.command("tenants", "measure", "hooli", "--json"))["tenants"]

        (line,) = [each for each in listed if each["tenant"] == "hooli"]
        assert (line["state"], line["found_in"]) == ("active", ["redis", "dynamodb", "s3"])
        parts = {part["part"]: part for part in measured["parts"]}
        rows = [item for table, item in hooli.iter_items() if table == "chat_directory"]
        assert parts["directory"]["items"] == pytest.approx(len(rows), abs=5)
        assert parts["directory/by_member"]["items"] == parts["directory"]["items"]
        assert parts["directory"]["bytes"] > 100 * parts["directory"]["items"]
        assert parts["memory"]["bytes"] > 0
        assert measured["usd_per_month"] > 0

        hooli.command("tenants", "block", "hooli", "--reason", "unpaid bill")
        assert ann.get_refusal("GET", f"/v1/chats/{chat}/messages") == (403, "forbidden")
        assert ann.call("GET", "/v1/me").json()["detail"] == "tenant hooli is blocked: unpaid bill"
        assert hooli.public.get("/healthz") == {"status": "ok"}
        assert hooli.public.call("GET", "/readyz").status_code == 503
        hooli.command("tenants", "unblock", "hooli")
        wait_for(lambda: ann.call("GET", "/v1/me").is_success, "requests are served again")
        ann.send(chat, f"later {mark}")
        assert [text for _, text in history(ben, chat)] == [f"text {mark}", f"later {mark}"]
