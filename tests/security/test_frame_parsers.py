"""Frames that are not valid JSON in UTF-8 are refused (section 3)."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.rawchat import RawChat
from tests.support.stack import Stack
from tests.support.wire import CLOSE, TEXT

NOT_UTF8, NOT_CHAT = 1007, 3501
DEEP = 30_000
# CHAT is replaced by a chat of the sender.
SEND = b'{"type":"send","id":1,"chat":"CHAT","ref":"r","body":%b}'
FRAMES = {
    "NaN": b'{"type":"mark","id":1,"chat":"CHAT","read":NaN}',
    "Infinity": b'{"type":"mark","id":1,"chat":"CHAT","read":Infinity}',
    "1e999": b'{"type":"mark","id":1,"chat":"CHAT","read":1e999}',
    "2^70": b'{"type":"mark","id":1,"chat":"CHAT","read":1180591620717411303424}',
    "2^53": b'{"type":"mark","id":1,"chat":"CHAT","read":9007199254740992}',
    "lone surrogate": SEND % rb'"\ud800"',
    "surrogates in the wrong order": SEND % rb'"\udc00\ud800"',
    "nested arrays": SEND % (b"[" * DEEP + b"]" * DEEP),
    "nested and open": SEND % (b"[" * DEEP),
    "NUL": SEND % rb'"a\u0000b"',
    "raw NUL": SEND % b'"a\x00b"',
    "other control characters": SEND % rb'"a\u001bb"',
    "byte order mark": b"\xef\xbb\xbf" + SEND % b'"a"',
    "overlong": SEND % b'"\xc0\xaf"',
    "surrogate in UTF-8": SEND % b'"\xed\xa0\x80"',
    "beyond Unicode": SEND % b'"\xf4\x90\x80\x80"',
    "an object in place of a text": SEND % b'{"$gt":""}',
    "two frames": SEND % b'"a"' + SEND % b'"b"',
    "comment": SEND % b'/**/"a"',
    "single quotes": SEND % b"'a'",
    "too many marks": SEND % ('"e' + "\u0301" * 300 + '"').encode(),
}


@pytest.mark.parametrize("name", FRAMES)
async def test_section_3_frame_with_invalid_json_is_refused(
    stack: Stack, alice: RawChat, bob: RawChat, pair: str, name: str
) -> None:
    """The sender gets an error or a close; others receive only the next valid message."""
    data = FRAMES[name].replace(b"CHAT", pair.encode())
    ws = await stack.open_live(stack.port, alice.user)
    try:
        await ws.send(TEXT, data)
        answer = await ws.recv_answer()
    finally:
        await ws.abort()

    if name in {"lone surrogate", "surrogates in the wrong order"}:
        assert msgspec.json.decode(answer.payload)["type"] == "error"
    if answer.opcode == CLOSE:
        assert answer.close_code == NOT_UTF8
    else:
        error = msgspec.json.decode(answer.payload)
        assert (error["type"], error["code"]) in (("error", "bad_request"), ("bye", NOT_CHAT))
    await alice.send(pair, "first")
    await bob.expect_bodies(pair, ["first"])
    assert not bob.of_type("event", kind="read")
