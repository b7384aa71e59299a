"""Records of a gateway stream: encoding and decoding."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.hot.bus import gateway_stream
from chatserver.hot.users.inbox import parse_gateways

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 2**53)
blobs = st.binary(max_size=50)
records = st.one_of(
    st.builds(gateway_stream.Push, st.lists(texts), texts, st.lists(numbers), blobs),
    st.builds(gateway_stream.NewSeq, texts, numbers),
    st.builds(gateway_stream.Publish, texts, texts, numbers, blobs),
    st.builds(gateway_stream.ChannelSignal, texts, texts, blobs),
    st.builds(gateway_stream.UserSignal, texts, blobs),
    st.builds(gateway_stream.StoredUpdate, texts, texts, numbers, texts),
    st.builds(gateway_stream.CallResult, texts, texts, blobs),
)


@given(st.lists(records, max_size=10))
def test_gateway_stream_records_round_trip(sent: list[gateway_stream.AnyRecord]) -> None:
    """Each kind of record decodes to an equal record, in order."""
    data = msgspec.msgpack.encode(sent)

    assert msgspec.msgpack.decode(data, type=list[gateway_stream.AnyRecord]) == sent


def test_gateway_stream_records_have_unique_tags() -> None:
    """Two kinds with the same tag could not be distinguished."""
    kinds = (
        gateway_stream.Push,
        gateway_stream.NewSeq,
        gateway_stream.Publish,
        gateway_stream.ChannelSignal,
        gateway_stream.UserSignal,
        gateway_stream.StoredUpdate,
        gateway_stream.CallResult,
    )

    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("text", "gateways"), [(b"", ()), (b"gw1", ("gw1",)), (b"gw1,gw2", ("gw1", "gw2"))]
)
def test_parse_gateways_returns_each_gateway(text: bytes, gateways: tuple[str, ...]) -> None:
    """The encoded gateways are decoded again; an offline user has none."""
    assert parse_gateways(text) == gateways
