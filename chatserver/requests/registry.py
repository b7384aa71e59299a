"""The declared requests of the core and of the installed features."""

from __future__ import annotations

import functools
import importlib
import operator
import pkgutil
from collections.abc import Mapping
from typing import Any

import msgspec

from chatserver import requests
from chatserver.domain.ids import UserId
from chatserver.features.registry import list_features
from chatserver.hot.bus import rpc
from chatserver.protocol import codec
from chatserver.protocol.frames import ClientFrame, ServerFrame
from chatserver.requests.operation import Operation, ServerPush

_encode = msgspec.msgpack.Encoder().encode


@functools.cache
def _list_declarations() -> tuple[Operation[Any] | ServerPush, ...]:
    """Return what the modules of `chatserver.requests` and of the installed features declare.

    A feature declares its requests and pushes in its module `requests`.
    """
    found = {each.name for each in pkgutil.iter_modules(requests.__path__)}
    names = ["connection", *sorted(found - {"connection"})]  # documents begin with `hello`
    modules = [f"{requests.__name__}.{name}" for name in names]
    modules += [feature.requests for feature in list_features() if feature.requests]
    return tuple(
        each
        for module in modules
        for each in vars(importlib.import_module(module)).values()
        if isinstance(each, Operation | ServerPush)
    )


@functools.cache
def list_operations() -> Mapping[type[msgspec.Struct], Operation[Any]]:
    """Return all declared requests, by frame type."""
    found: dict[type[msgspec.Struct], Operation[Any]] = {}
    for each in _list_declarations():
        if isinstance(each, Operation) and found.setdefault(each.frame, each) is not each:
            raise ValueError(f"{each.frame.__name__} is declared twice")
    return found


def list_pushes() -> list[type[ServerFrame]]:
    """Return the types of the frames that the server sends without a request."""
    pushes = (each.frame for each in _list_declarations() if isinstance(each, ServerPush))
    return list(dict.fromkeys(pushes))


def get_operation(frame: msgspec.Struct) -> Operation[Any]:
    """Return the declaration of a decoded frame."""
    return list_operations()[type(frame)]


def _build_union() -> Any:
    return functools.reduce(operator.or_, list_operations())


@functools.cache
def get_decoder() -> msgspec.json.Decoder[ClientFrame]:
    """Return the decoder of client frames, for `codec.decode_client_frame`."""
    return msgspec.json.Decoder(_build_union())


@functools.cache
def _get_call_decoder() -> msgspec.msgpack.Decoder[ClientFrame]:
    return msgspec.msgpack.Decoder(_build_union())


def decode_frame(data: bytes) -> ClientFrame:
    """Decode a client frame; see `codec.decode_client_frame`."""
    return codec.decode_client_frame(data, get_decoder())


def compute_frame_cost(frame: msgspec.Struct) -> int:
    """Return the cost of a frame in tokens."""
    return get_operation(frame).compute_cost(frame)


def compute_memory_cost(frame: msgspec.Struct, size_bytes: int) -> int:
    """Return the memory cost of a frame that is not a `Send`; 0 if the frame stores nothing."""
    return get_operation(frame).compute_memory(frame, size_bytes)


def make_call(user: UserId, frame: ClientFrame) -> rpc.ForwardFrame:
    """Return the call that makes a worker handle a frame."""
    operation = get_operation(frame)
    is_bulk = operation.is_bulk is not None and operation.is_bulk(frame)
    priority: rpc.Priority = (
        "protective" if operation.is_protective else "bulk" if is_bulk else "normal"
    )
    return rpc.ForwardFrame(user, operation.name, priority, msgspec.Raw(_encode(frame)))


def read_call(call: rpc.ForwardFrame) -> tuple[Operation[Any], ClientFrame]:
    """Return the declaration and the frame of a call.

    Raises:
        msgspec.MsgspecError: the call is from another version.
    """
    frame = _get_call_decoder().decode(call.frame)
    return get_operation(frame), frame
