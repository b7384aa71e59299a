"""Messages as items of the table: encoding and decoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.errors import CorruptData
from chatserver.protocol.frames import Message
from chatserver.warm.messages.messages import PersistItem, decode_item, encode_item

DIRECT = Message(
    seq=7,
    ts=1_795_000_000_123_456,
    chat="d-abc",
    mid="01M",
    sender="alice",
    ref="r1",
    kind="text",
    body="hello",
)


def test_item_of_a_direct_message_has_the_attributes_of_the_data_model() -> None:
    """Other systems read this table too: its attributes are a contract."""
    item = encode_item(PersistItem(DIRECT, receiver="bob"))

    assert item == {
        "chatid": {"S": "d-abc"},
        "ts": {"N": "1795000000123456"},
        "seq": {"N": "7"},
        "mid": {"S": "01M"},
        "ref": {"S": "r1"},
        "sender_id": {"S": "alice"},
        "receiver_id": {"S": "bob"},
        "kind": {"S": "text"},
        "body": {"S": "hello"},
        "status": {"S": "active"},
        "status_ts": {"S": "active#00001795000000123456"},
        "rev": {"N": "1"},
        "sum": {"S": "1.1.d649d1a6"},
    }


def test_item_of_a_group_message_has_no_receiver() -> None:
    """The receiver index is sparse: it contains only direct chats."""
    item = encode_item(PersistItem(DIRECT, receiver=None))

    assert "receiver_id" not in item


@given(
    seq=st.integers(1, 2**53 - 1),
    ts=st.integers(0, 2**53 - 1),
    body=st.text(min_size=1),
    reply_to=st.none() | st.integers(1, 2**53 - 1),
)
def test_message_encoded_and_decoded_is_equal(
    seq: int, ts: int, body: str, reply_to: int | None
) -> None:
    """The warm tier changes no field of a message."""
    message = Message(seq, ts, "g-1", "01M", "alice", "r1", "text", body, reply_to)

    assert decode_item(encode_item(PersistItem(message, None))) == message


@pytest.mark.parametrize("broken", [{"seq": {"N": "x"}}, {"seq": {"S": "1"}}, {"body": {}}])
def test_item_that_is_not_a_message_is_corrupt_data(broken: dict[str, dict[str, str]]) -> None:
    """An invalid item is an error that names the chat."""
    item = encode_item(PersistItem(DIRECT, None)) | broken

    with pytest.raises(CorruptData, match="d-abc"):
        decode_item(item)
