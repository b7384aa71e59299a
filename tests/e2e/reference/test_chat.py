"""Real-time chat, as described in the document on databases for social chat messages."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key  # type: ignore[import-untyped]

from tests.e2e.reference.support import (
    HOST,
    LARGE_ABOVE,
    PASSWORD,
    Server,
    User,
    indexes_of,
    keys_of,
    wait_for,
)

# A valid browser key pair: the base point of P-256 as the public key, and a 16-byte secret.
P256DH = "BGsX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"
AUTH = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
def pair(server: Server) -> tuple[User, User, str]:
    """Two users and their direct chat."""
    ann, ben = server.add_users(2)
    return ann, ben, ann.open_direct(ben)


def test_search_finds_messages_by_their_words(server: Server) -> None:
    """Members find a message by its words, ignoring case and diacritics; other users do not."""
    ann, ben, eve = server.add_users(3)
    chat = ann.open_direct(ben)
    seq = ann.send(chat, "Frühstück at <nine>?")["seq"]
    ann.send(chat, "Lunch at one?")

    (found,) = wait_for(lambda: ben.get("/v1/search", q="FRUHSTUCK")["items"], "it is indexed")

    assert (found["message"]["chat"], found["message"]["seq"]) == (chat, seq)
    assert found["snippet"] == [{"text": "Frühstück", "hit": True}, {"text": " at <nine>?"}]
    with ben.connect() as device:
        page = device.request("search", q="FRUHSTUCK")
    assert (page["results"], page["more"]) == ([found], False)
    assert eve.get("/v1/search", q="fruhstuck")["items"] == []
    assert ben.get_refusal("GET", "/v1/search?q=has:link")[0] == 400
    ann.delete(f"/v1/chats/{chat}/messages/{seq}")
    assert ben.get("/v1/search", q="fruhstuck")["items"] == []


def test_login_at_the_api_leads_to_the_chat_server(server: Server) -> None:
    """The client logs in at the API, gets the gateway's address and connects with a token."""
    name = server.add_user().id

    config = server.public.get("/v1/client-config")
    granted = server.public.post("/v1/auth/login", {"user": name, "password": PASSWORD})

    user = User(server.addresses, granted)
    assert config["gateway_url"] == f"ws://{HOST}:{server.addresses.gateway}/"
    with user.connect() as device:
        assert device.welcome["user"] == name
    user.close()
    assert server.sort_keys("directory", f"u#{name}", "cred#") == [f"cred#{name}"]
    assert len(server.sort_keys("directory", f"u#{name}", "device#")) == 2


def test_users_are_items_and_not_rows_of_a_relational_database(server: Server) -> None:
    """The account, profile and logins of a user are items."""
    user = server.add_user()
    user.patch("/v1/me", {"name": "Ann", "about": "Likes the sea"})

    row = server.item("directory", PK=f"u#{user.id}", SK=f"u#{user.id}")
    assert row is not None and (row["name"], row["about"]) == ("Ann", "Likes the sea")
    assert user.get("/v1/me")["name"] == "Ann"
    assert server.host_application.get(f"/v1/admin/users/{user.id}")["name"] == "Ann"


def test_status_of_a_user_is_online_while_a_device_is_connected(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """Redis is the status server: users who share a chat get the status live and on request."""
    ann, ben, chat = pair
    ann.send(chat, "Hi")
    ben.send(chat, "Hello")
    with ann.connect() as watcher:
        watcher.send("watch", users=[ben.id])
        with ben.connect():
            live = watcher.wait_for(type="signal", kind="presence", state="online")
            assert live["from"] == ben.id
            assert ann.get("/v1/presence", user=ben.id)["items"][0]["state"] == "online"
            gateways = server.redis.zrange(server.redis_key(f"online:{ben.id}"), 0, -1)
            assert len(gateways) == 1


def test_message_is_queued_and_then_stored(server: Server, pair: tuple[User, User, str]) -> None:
    """A Redis Stream is the queue before DynamoDB: the send is acked at once, then `stored`."""
    ann, _, chat = pair
    with ann.connect() as device:
        ack = device.request("send", chat=chat, ref="r1", body="Hi")
        stored = device.wait_for(type="stored", chat=chat)

    assert ack["durability"] == "hot" and stored["upto"] == 1
    (item,) = server.messages(chat)
    assert (item["mid"], item["ts"]) == (ack["mid"], ack["ts"])
    backlog = server.redis_key("backlog")
    assert server.redis.type(backlog) == "stream"
    wait_for(lambda: server.redis.xlen(backlog) == 0, "the queue is empty")


@pytest.fixture
def push_service() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A Web Push service: its URL, and the headers of the received requests."""
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            received.append(dict(self.headers))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name
            """Print nothing."""

    service = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=service.serve_forever, daemon=True)
    thread.start()
    yield f"http://{HOST}:{service.server_port}", received
    service.shutdown()
    thread.join(60)
    service.server_close()


def test_user_without_a_connection_gets_a_push(
    server: Server,
    pair: tuple[User, User, str],
    push_service: tuple[str, list[dict[str, str]]],
) -> None:
    """Online users get the message; offline users get a notification."""
    ann, ben, chat = pair
    url, received = push_service
    made = ben.post(
        "/v1/me/push-subscriptions",
        {"endpoint": f"{url}/ben", "keys": {"p256dh": P256DH, "auth": AUTH}},
    )

    ann.send(chat, "Are you there?")

    wait_for(lambda: received, "a push")
    assert received[0]["Content-Encoding"] == "aes128gcm"
    row = server.item("directory", PK=f"u#{ben.id}", SK=f"push#{made['id']}")
    assert row is not None and (row["kind"], row["target"]) == ("web", f"{url}/ben")


def test_operators_see_the_processes(server: Server) -> None:
    """API keys of the host application can read the state of all servers."""

    def list_kinds() -> set[str]:
        """A process that could not report in time, on a busy machine, is left out."""
        overview = server.host_application.get("/v1/admin/overview")
        return {each["kind"] for each in overview["processes"]}

    wait_for(lambda: {"gateway", "api", "worker"} <= list_kinds(), "all processes are listed")


# the message store and the message sync store


def test_direct_message_is_in_both_inboxes_and_stored_once(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """The message is written to both inboxes in Redis, and is one item in DynamoDB."""
    ann, ben, chat = pair

    ack = ann.send(chat, "Hi")

    for user in (ann, ben):
        wait_for(lambda user=user: {chat: "1"} in server.inbox(user), "the inbox")  # type: ignore[misc]
    assert [item["seq"] for item in server.messages(chat)] == [ack["seq"]] == [1]
    assert server.redis.type(server.redis_key(f"inbox:{ben.id}")) == "stream"


def test_message_of_a_small_group_is_in_the_inbox_of_each_member(server: Server) -> None:
    """The message is written to each member's inbox, and the group's history is stored once."""
    ann, *others = server.add_users(3)
    chat = ann.create_group(*others)

    ann.send(chat, "Hi all")

    for user in (ann, *others):
        wait_for(lambda user=user: {chat: "1"} in server.inbox(user), "the inbox")  # type: ignore[misc]
    (item,) = server.messages(chat)
    assert "receiver_id" not in item
    assert others[0].texts(f"/v1/chats/{chat}/messages/between") == ["Hi all"]


def test_message_of_a_large_group_is_only_in_the_group_log(server: Server) -> None:
    """A group above the fan-out limit has one log, which all members read."""
    ann, *others = server.add_users(LARGE_ABOVE + 1)
    chat = ann.create_group(*others)
    with others[0].connect() as device:
        ack = ann.send(chat, "Hi all")
        event = device.wait_for(type="event", chat=chat, kind="message")

    assert (event["seq"], event["cs"]) == (0, ack["seq"])
    log = server.redis.xrange(server.redis_key(f"log:{chat}"))
    assert [number for number, _ in log] == ["1-0"]
    assert not any(chat in entry for user in others for entry in server.inbox(user))
    assert len(server.messages(chat)) == 1


def test_offline_messages_are_delivered_in_order(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """The inbox is a stream sorted by id; a device resumes after its cursor."""
    ann, ben, chat = pair
    with ben.connect() as device:
        cursor = {name: device.welcome[name] for name in ("epoch", "seq")}
    for number in range(3):
        ann.send(chat, f"missed {number}")

    with ben.connect(cursor=cursor) as device:
        events = [device.wait_for(type="event", kind="message", cs=n) for n in (1, 2, 3)]

    assert [event["message"]["body"] for event in events] == [f"missed {n}" for n in range(3)]
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(seqs)
    numbers = [n for n, _ in server.redis.xrange(server.redis_key(f"inbox:{ben.id}"))]
    assert numbers == sorted(numbers, key=lambda n: int(n.split("-")[0]))


def test_all_devices_of_a_user_receive_each_message_once(pair: tuple[User, User, str]) -> None:
    """Each device of a user, including the sender's other device, gets each message once."""
    ann, ben, chat = pair
    with ann.connect("phone") as phone, ann.connect("laptop") as laptop, ben.connect() as other:
        phone.request("send", chat=chat, ref="r1", body="From my phone")
        events = [each.wait_for(type="event", cs=1) for each in (phone, laptop, other)]

    assert {event["message"]["body"] for event in events} == {"From my phone"}
    assert events[0]["seq"] == events[1]["seq"]


def test_message_ids_are_unique_and_increase(pair: tuple[User, User, str]) -> None:
    """`seq` counts the messages of a chat; a repeated send returns the same id."""
    ann, _, chat = pair
    with ann.connect() as device:
        acks = [device.request("send", chat=chat, ref=f"r{n}", body="Hi") for n in range(20)]
        again = device.request("send", chat=chat, ref="r7", body="Hi")

    assert [ack["seq"] for ack in acks] == list(range(1, 21))
    assert len({ack["mid"] for ack in acks}) == 20
    assert (again["mid"], again["dup"]) == (acks[7]["mid"], True)


def test_recent_messages_are_listed_newest_chat_first(server: Server) -> None:
    """Chats are ordered by their newest message and have unread counts."""
    ann, ben, cleo = server.add_users(3)
    chats = [ben.open_direct(ann), cleo.open_direct(ann)]
    ben.send(chats[0], "first")
    cleo.send(chats[1], "second")
    ben.send(chats[0], "third")

    listed = ann.pages("/v1/chats", limit=1)

    assert [(each["chat"], each["unread"]) for each in listed] == [(chats[0], 2), (chats[1], 1)]
    assert listed[0]["last"]["body"] == "third"
    assert server.redis.hget(server.redis_key(f"chat:{chats[0]}"), "seq") == "2"


def test_history_is_read_from_redis_and_then_from_dynamodb(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """The newest messages are in Redis; all messages are in DynamoDB."""
    ann, ben, chat = pair
    with ann.connect() as device:
        device.send_messages(chat, [f"text {number}" for number in range(1, 31)])
        device.wait_for(type="stored", chat=chat, upto=30)
    log = server.redis_key(f"log:{chat}")
    wait_for(lambda: server.redis.xlen(log) < 20, "the log is trimmed")

    newest = ben.get(f"/v1/chats/{chat}/messages", limit=5)
    older = ben.get(f"/v1/chats/{chat}/messages", before=newest["messages"][0]["seq"], limit=25)

    assert (newest["tier"], older["tier"]) == ("hot", "warm")
    found = [message["body"] for message in older["messages"] + newest["messages"]]
    assert found == [f"text {number}" for number in range(1, 31)]
    assert len(server.messages(chat)) == 30


def test_large_objects_are_in_s3_and_their_metadata_in_redis_and_dynamodb(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """A file is uploaded to S3, sent, and downloaded with a link that only members get."""
    ann, ben, chat = pair
    content = b"a sound " * 100
    file = server.upload(ann, chat, content, "sound.bin")
    unsent = server.redis_key(f"file:{file}")

    ann.send(chat, "listen", attachments=[file])

    assert unsent
    row = server.item("directory", PK=f"file#{file}", SK=f"file#{file}")
    assert row is not None and (row["file_name"], row["size"]) == ("sound.bin", len(content))
    assert server.read_object(f"attachments/{chat}/{file}") == content
    link = ben.get(f"/v1/attachments/{file}/link")
    assert server.download(link["url"]) == content
    assert server.add_user().get_refusal("GET", f"/v1/attachments/{file}/link") == (
        404,
        "not_found",
    )


def test_redis_keeps_its_data_on_disk(server: Server) -> None:
    """Redis has an append-only file and evicts nothing; lost chats are loaded from DynamoDB."""
    persistence = server.redis.info("persistence")

    assert persistence["aof_enabled"] == 1
    assert server.redis.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    ann, ben = server.add_users(2)
    chat = ann.open_direct(ben)
    ann.send(chat, "kept")
    lost = list(server.redis.scan_iter(f"*:{chat}", count=10_000))
    wait_for(lambda: server.redis.xlen(server.redis_key("backlog")) == 0, "the queue is empty")
    server.redis.delete(*lost)
    page = ben.get(f"/v1/chats/{chat}/messages")
    assert [message["body"] for message in page["messages"]] == ["kept"]
    assert page["tier"] == "warm"


def test_message_table_has_the_keys_and_indexes_of_the_document(server: Server) -> None:
    """The keys are `chatid` and `ts`; the indexes are by sender, receiver and status."""
    table = server.describe("messages")
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    indexes = {name: keys_of(index) for name, index in indexes_of(table).items()}

    assert keys_of(table) == ["chatid", "ts"]
    assert (types["chatid"], types["ts"], types["status_ts"]) == ("S", "N", "S")
    assert indexes == {
        "sender": ["sender_id", "ts"],
        "receiver": ["receiver_id", "ts"],
        "status": ["chatid", "status_ts"],
        "files": ["files_of", "ts"],
    }


def test_message_item_has_the_attributes_of_the_document(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """A message is one item: id, chat, sender, receiver, time, body, status and `status_ts`."""
    ann, ben, chat = pair

    ack = ann.send(chat, "Hi", ref="r1")

    (item,) = server.messages(chat)
    assert re.fullmatch(r"[0-9a-zA-Z.]+", str(item.pop("sum")))
    assert item == {
        "chatid": chat,
        "ts": ack["ts"],
        "seq": 1,
        "mid": ack["mid"],
        "ref": "r1",
        "sender_id": ann.id,
        "receiver_id": ben.id,
        "kind": "text",
        "body": "Hi",
        "status": "active",
        "status_ts": f"active#{ack['ts']:020d}",
        "rev": 1,
    }


def test_timestamps_are_microseconds_and_unique_in_a_chat(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """Messages sent at the same time get different timestamps."""
    ann, _, chat = pair
    with ann.connect() as device:
        times = [ack["ts"] for ack in device.send_messages(chat, ["Hi"] * 30)]

    assert times == sorted(set(times))
    assert abs(times[0] / 1e6 - time.time()) < 60
    wait_for(lambda: len(server.messages(chat)) == 30, "all are stored")
    assert [item["ts"] for item in server.messages(chat)] == times


def test_chat_messages_are_listed_completely_and_by_time_range(
    server: Server, pair: tuple[User, User, str]
) -> None:
    """A Query by `chatid`, with or without a range of `ts`."""
    ann, ben, chat = pair
    times = [ann.send(chat, f"text {number}")["ts"] for number in range(4)]
    path = f"/v1/chats/{chat}/messages/between"

    condition = Key("chatid").eq(chat) & Key("ts").between(*times[1:3])
    rows = server.query("messages", condition)

    assert ben.texts(path, order="oldest") == [item["body"] for item in server.messages(chat)]
    in_range = ben.texts(path, order="oldest", from_=times[1], to=times[2])
    assert in_range == [row["body"] for row in rows] == ["text 1", "text 2"]
    assert ben.texts(path, limit=1) == [f"text {number}" for number in (3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("index", "attribute", "mine"),
    [("sender", "sender_id", "/v1/me/sent"), ("receiver", "receiver_id", "/v1/me/received")],
)
def test_messages_are_listed_by_sender_or_receiver_and_time_range(
    server: Server, index: str, attribute: str, mine: str
) -> None:
    """A Query of the index `sender` or `receiver`, for the user and for the host application."""
    ann, ben, cleo = server.add_users(3)
    chats = [ann.open_direct(ben), ann.open_direct(cleo)]
    acks = [ann.send(chats[number % 2], f"text {number}") for number in range(4)]
    times = [ack["ts"] for ack in acks]
    user, expected = (ann, [0, 1, 2, 3]) if index == "sender" else (ben, [0, 2])
    texts = [f"text {number}" for number in expected]
    admin = f"/v1/admin/users/{user.id}/{mine.rsplit('/', 1)[1]}"
    owner = Key(attribute).eq(user.id)

    wait_for(lambda: len(server.query("messages", owner, index)) == len(texts), "the index")
    rows = server.query("messages", owner & Key("ts").between(times[1], times[2]), index)

    in_range = user.texts(mine, order="oldest", from_=times[1], to=times[2])
    assert user.texts(mine, order="oldest") == texts
    assert server.host_application.texts(admin, order="oldest") == texts
    assert in_range == [f"text {n}" for n in expected if n in (1, 2)]
    assert [row["ts"] for row in rows] == [times[n] for n in expected if n in (1, 2)]


def test_messages_of_all_chats_of_a_user_are_one_list_by_time(server: Server) -> None:
    """The list has sent and received messages of direct chats and groups: one item per chat."""
    ann, ben, cleo = server.add_users(3)
    chats = [ann.open_direct(ben), ann.create_group(ben, cleo), cleo.open_direct(ann)]
    sends = [(ann, 0), (ben, 1), (cleo, 2), (cleo, 1), (ben, 0), (ann, 1)]
    acks = [user.send(chats[n], f"text {at}") for at, (user, n) in enumerate(sends)]
    texts = [f"text {at}" for at in range(len(sends))]
    times = [ack["ts"] for ack in acks]
    mine, admin = "/v1/me/messages", f"/v1/admin/users/{ann.id}/messages"

    received = ann.texts(mine, order="oldest", direction="received")
    days = [server.item("directory", PK=f"c#{chat}", SK=f"recorded_days#{chat}") for chat in chats]
    members = server.rows("directory", f"u#{ann.id}")

    assert ann.texts(mine, order="oldest") == texts
    assert ann.texts(mine, limit=2) == texts[::-1]
    assert ann.texts(mine, order="oldest", from_=times[1], to=times[3]) == texts[1:4]
    assert ann.texts(mine, order="oldest", direction="sent") == ["text 0", "text 5"]
    assert received == texts[1:5]
    assert server.host_application.texts(admin, order="oldest") == texts
    assert cleo.texts(mine, order="oldest") == [texts[n] for n in (1, 2, 3, 5)]
    assert all(day is not None and day["first"] == times[0] // 86_400_000_000 for day in days)
    assert not [row["SK"] for row in members if any(chat in row["SK"] for chat in chats)]


def test_active_messages_of_a_chat_are_listed(server: Server, pair: tuple[User, User, str]) -> None:
    """A Query for `status_ts` values that begin with `active`; a deletion changes the value."""
    ann, ben, chat = pair
    acks = [ann.send(chat, text) for text in ("kept", "deleted", "also kept")]
    ann.delete(f"/v1/chats/{chat}/messages/{acks[1]['seq']}")

    active = Key("chatid").eq(chat) & Key("status_ts").begins_with("active")
    wait_for(lambda: len(server.query("messages", active, "status")) == 2, "the index")

    assert ben.texts(f"/v1/chats/{chat}/messages/active", order="oldest") == ["kept", "also kept"]
    admin = f"/v1/admin/chats/{chat}/messages/active"
    assert server.host_application.texts(admin, order="oldest") == ["kept", "also kept"]
    deleted = Key("chatid").eq(chat) & Key("status_ts").begins_with("deleted#")
    rows = server.query("messages", deleted, "status")
    assert [row["ts"] for row in rows] == [acks[1]["ts"]]
    assert server.messages(chat)[1]["body"] == ""
