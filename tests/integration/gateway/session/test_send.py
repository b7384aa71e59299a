"""chat.v1: `send`, its ack, its events, and the errors of refused sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import RawChat, get_refusal
from tests.support.stack import NewName, Stack


async def test_send_is_acked_and_pushed_to_every_device(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """Each device of both users, including the sender's, gets the message once."""
    second = await stack.chat_of(alice.user, device="tablet").start()

    ack = await alice.send(pair, "Hello", ref="r-1")

    assert (ack["seq"], ack["dup"], ack["durability"], ack["ref"]) == (1, False, "hot", "r-1")
    for device in (alice, second, bob):
        event = await device.expect_frame("event", kind="message", chat=pair)
        assert event["cs"] == 1
        assert event["message"] == {
            "seq": 1,
            "ts": ack["ts"],
            "chat": pair,
            "mid": ack["mid"],
            "sender": alice.user,
            "ref": "r-1",
            "kind": "text",
            "body": "Hello",
        }
    await second.stop()


async def test_sends_of_both_sides_have_one_order(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Both users get the same messages with the same seqs."""
    await asyncio.gather(
        *(side.send(pair, f"{side.user} {n}") for n in range(20) for side in (alice, bob))
    )
    for side in (alice, bob):
        await side.expect(lambda me: len(me.messages(pair)) == 40)

    assert alice.messages(pair) == bob.messages(pair)
    seqs = [message["seq"] for message in alice.messages(pair)]
    stamps = [message["ts"] for message in alice.messages(pair)]
    assert seqs == list(range(1, 41))
    assert stamps == sorted(set(stamps))


async def test_pipelined_sends_keep_their_order(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Sends of one connection get seqs in the order of sending, without waiting for acks."""
    bodies = [f"m{number}" for number in range(60)]
    for body in bodies:
        await alice.send_nowait(pair, body)

    await bob.expect_bodies(pair, bodies)


async def test_retry_with_the_same_ref_returns_the_first_ack(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The ack of a retry has `dup`, and no user gets a second message."""
    first = await alice.send(pair, "once", ref="r-1")

    again = await alice.send(pair, "once", ref="r-1")

    assert again["dup"]
    for name in ("seq", "ts", "mid", "ref"):
        assert again[name] == first[name]
    await alice.send(pair, "next")
    await bob.expect_bodies(pair, ["once", "next"])


async def test_concurrent_retries_are_one_message(alice: RawChat, bob: RawChat, pair: str) -> None:
    """Concurrent sends with one ref are committed once."""
    answers = await asyncio.gather(*(alice.send_unrecorded(pair, "r-1", "once") for _ in range(10)))

    assert {answer["seq"] for answer in answers} == {1}
    assert sorted(answer["dup"] for answer in answers) == [False] + [True] * 9
    await alice.send(pair, "next")
    await bob.expect_bodies(pair, ["once", "next"])


async def test_retry_on_another_connection_is_the_same_message(
    stack: Stack, alice: RawChat, pair: str
) -> None:
    """A ref belongs to the user, not to the connection."""
    first = await alice.send(pair, "once", ref="r-1")
    second = await stack.chat_of(alice.user, device="tablet").start()

    again = await second.send(pair, "once", ref="r-1")

    assert (again["dup"], again["seq"]) == (True, first["seq"])
    await second.stop()


@pytest.mark.parametrize(
    "other",
    [{"body": "else"}, {"kind": "markdown"}, {"reply_to": 1}, {"expires_s": 60}],
    ids=str,
)
async def test_same_ref_for_another_message_is_a_conflict(
    alice: RawChat, bob: RawChat, pair: str, other: dict[str, Any]
) -> None:
    """A ref identifies one message, so different content under it is refused."""
    await alice.send(pair, "zero")
    await alice.send(pair, "once", ref="r-1")

    body = other.pop("body", "once")
    failed = await get_refusal(alice.send(pair, body, ref="r-1", **other))

    assert (failed.code, failed.is_temporary) == ("conflict", False)
    await alice.send(pair, "next")
    await bob.expect_bodies(pair, ["zero", "once", "next"])


async def test_send_with_kind_and_reply_to_delivers_them(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The fields of the sender are pushed to the other user."""
    await alice.send(pair, "question?")

    await bob.send(pair, "*answer*", kind="markdown", reply_to=1)

    event = await alice.expect_frame("event", cs=2)
    assert (event["message"]["kind"], event["message"]["reply_to"]) == ("markdown", 1)


async def test_reply_to_a_missing_message_is_refused(
    alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The refused send consumes no seq, and its ref can be used again."""
    await alice.send(pair, "question?")

    failed = await get_refusal(bob.send(pair, "answer", ref="r-1", reply_to=2))
    ack = await bob.send(pair, "answer", ref="r-1", reply_to=1)
    again = await bob.send(pair, "answer", ref="r-1", reply_to=1)

    assert (failed.code, failed.is_temporary) == ("bad_request", False)
    assert failed.message.startswith("reply_to: ")
    assert (ack["seq"], ack["dup"], again["seq"], again["dup"]) == (2, False, 2, True)


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("x" * 4000, None),
        ("\U0001f600" * 4000, None),  # 16,000 bytes
        ("tab\tand\nnewline", None),
        ("one\r\ntwo\rthree\r\n", "one\ntwo\nthree\n"),
        ("e\u0301", "\u00e9"),
        ("a" + "\u0316" * 8, None),
        ('quotes " \\ / and {"json":1}', None),
        ("\u2028\u2029\u200f<script>", None),
    ],
    ids=[
        "longest",
        "widest",
        "white space",
        "line breaks",
        "composed",
        "marks",
        "quotes",
        "separators",
    ],
)
async def test_body_arrives_unchanged(
    alice: RawChat, bob: RawChat, pair: str, body: str, stored: str | None
) -> None:
    """Any valid text is delivered unchanged, except for NFC and line breaks."""
    await alice.send(pair, body)

    await bob.expect_bodies(pair, [body if stored is None else stored])
    page = await bob.request("history", chat=pair)
    assert page["messages"][0]["body"] == (body if stored is None else stored)


# ── permissions ───────────────────────────────────────────────────────────────────────────────────


async def test_send_to_a_foreign_chat_gets_the_error_for_a_missing_chat(
    stack: Stack, alice: RawChat, pair: str, new_name: NewName
) -> None:
    """A non-member cannot distinguish a foreign chat from one that does not exist."""
    await alice.send(pair, "secret")
    async with stack.chat_of(new_name("mallory")) as mallory:
        foreign = await get_refusal(mallory.send(pair, "let me in"))
        absent = await get_refusal(mallory.send("d-nosuch", "let me in"))

        assert foreign.code == absent.code == "not_found"
        assert foreign.message == absent.message
        assert mallory.messages() == []
    page = await alice.request("history", chat=pair)
    assert [message["body"] for message in page["messages"]] == ["secret"]


async def test_send_of_a_non_member_is_not_delivered(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str, new_name: NewName
) -> None:
    """A refused send consumes no seq and is not delivered."""
    async with stack.chat_of(new_name("mallory")) as mallory:
        await asyncio.gather(*(get_refusal(mallory.send(pair, f"no {n}")) for n in range(5)))

    ack = await alice.send(pair, "yes")

    assert ack["seq"] == 1
    await bob.expect_bodies(pair, ["yes"])


async def test_sends_above_the_limit_in_flight_are_refused_temporarily(
    stack: Stack, small_limits_gateway: Server, new_name: NewName
) -> None:
    """A client that does not wait for acks gets `rate_limited`; accepted sends stay in order."""
    alice = await stack.chat_of(new_name("alice"), port=small_limits_gateway.port).start()
    bob = await stack.chat_of(new_name("bob"), port=small_limits_gateway.port).start()
    chat = await alice.open_direct(bob.user)
    assert alice.welcome["limits"]["sends_in_flight_max"] == 4

    await alice.send_burst([(chat, f"r-{number}", f"m{number}") for number in range(40)])

    answers = await alice.expect(
        lambda me: (
            len(me.of_type("ack")) + len(me.of_type("error")) == 40
            and (me.of_type("ack"), me.of_type("error"))
        )
    )
    acks, errors = answers
    assert len(acks) >= 4
    assert errors, "some of the 40 sends must be refused"
    for error in errors:
        assert (error["code"], error["temporary"]) == ("rate_limited", True)
        assert error["retry_after_ms"] > 0
    accepted = [f"m{ack['ref'].removeprefix('r-')}" for ack in acks]
    await bob.expect_bodies(chat, accepted)
    await alice.stop()
    await bob.stop()


# ── durability ────────────────────────────────────────────────────────────────────────────────────


async def test_send_with_stored_durability_is_acked_after_dynamodb_has_it(
    stack: Stack, alice: RawChat, pair: str
) -> None:
    """An ack with `stored` means that DynamoDB has the message."""
    ack = await alice.send(pair, "keep this", durability="stored")

    assert ack["durability"] == "stored"
    assert [row.body for row in await stack.read_warm(pair)] == ["keep this"]


async def test_retry_of_a_stored_send_is_acked_at_once(alice: RawChat, pair: str) -> None:
    """A retry of a stored message does not wait for persistence."""
    first = await alice.send(pair, "keep this", ref="r-1", durability="stored")

    again = await alice.send(pair, "keep this", ref="r-1", durability="stored")

    assert (again["dup"], again["durability"]) == (True, "stored")
    assert again["seq"] == first["seq"]


async def test_stored_watermark_follows_every_ack(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str
) -> None:
    """The sender gets `stored` when a message is in DynamoDB; other users do not."""
    for number in range(5):
        ack = await alice.send(pair, f"m{number}")

    await alice.expect(
        lambda me: any(frame["upto"] >= ack["seq"] for frame in me.of_type("stored", chat=pair))
    )

    assert len(await stack.read_warm(pair)) == 5
    levels = [frame["upto"] for frame in alice.of_type("stored", chat=pair)]
    assert levels == sorted(levels)
    assert bob.of_type("stored") == []
