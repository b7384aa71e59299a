"""Generates values and edge cases of the wire types from the types themselves.

A field that is added to a frame is tested at its bounds without a new test, and a field
without a bound is found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as mi

from chatserver.protocol import frames
from chatserver.requests.registry import list_operations, list_pushes

CLIENT_FRAMES: tuple[type[Any], ...] = tuple(list_operations())
REPLIES = [reply for each in list_operations().values() for reply in each.replies]
SERVER_FRAMES: tuple[type[frames.ServerFrame], ...] = tuple(
    dict.fromkeys([*REPLIES, *list_pushes()])
)

# Free text is limited in characters and in bytes; domain.text_validation checks both.
FREE_TEXT = {
    ("send", "body"),
    ("edit", "body"),
    ("react", "emoji"),
    ("create_chat", "name"),
    ("update_chat", "name"),
    ("update_chat", "topic"),
}

# For each pattern: strings that match at its bounds, and strings just beyond them.
GRAMMARS: dict[str, tuple[list[str], list[str]]] = {
    "[A-Za-z0-9_-]{0,64}": (
        ["A-z_09", "", "a" * 64],
        ["a" * 65, "a\n", "a b", "a:b", "é", "a\x00"],
    ),
    "[A-Za-z0-9_-]{1,64}": (
        ["A-z_09", "a", "a" * 64],
        ["", "a" * 65, "a\n", "\na", "a b", "a:b", "a#b", "{a}", "é", "a\x00"],
    ),
    frames.KIND_PATTERN[1 : -len(r"(?![\s\S])")]: (
        ["a", "a.b_c-0", "a" * 32, "edits"],
        ["", "a" * 33, "a\n", "A", "0a", "a b", *frames.RESERVED_KINDS],
    ),
    "ai-[a-z0-9][a-z0-9_-]{0,36}": (
        ["ai-ada", "ai-0", "ai-" + "a" * 37],
        ["", "ai-", "ada", "ai-" + "a" * 38, "ai-A", "ai--", "ai-a\n", "\nai-a", "ai-a#b", "AI-a"],
    ),
    "[0-9]{1,16}-[A-Za-z0-9_-]{1,64}": (
        ["0-a", "9" * 16 + "-" + "a" * 64],
        ["", "0", "-a", "0-", "9" * 17 + "-a", "0-" + "a" * 65, "0-a\n", "1.5-a"],
    ),
}

texts = st.text(st.characters(exclude_categories=["Cs"]))


@dataclasses.dataclass(frozen=True)
class Edge:
    """A bound of one field: a frame with the value at it, and one with the value beyond it."""

    frame: str
    path: tuple[str, ...]
    bound: str
    within: Any
    beyond: Any

    def __str__(self) -> str:
        return f"{self.frame}.{'.'.join(self.path)}-{self.bound}"


def tag_of(frame: type[msgspec.Struct]) -> str:
    """Return the `type` of a frame on the wire."""
    return str(frame.__struct_config__.tag)


def values_of(info: mi.Type) -> st.SearchStrategy[Any]:
    """Return a strategy of valid JSON values of the type."""
    match info:
        case mi.BoolType():
            return st.booleans()
        case mi.NoneType():
            return st.none()
        case mi.IntType(ge=ge, le=le):
            return st.integers(ge, le)
        case mi.StrType(pattern=str(pattern)):
            return st.from_regex(strip_anchors(pattern), fullmatch=True)
        case mi.StrType(min_length=least, max_length=most):
            return texts.filter(lambda text: (least or 0) <= len(text) <= (most or 10**9))
        case mi.LiteralType(values=values):
            return st.sampled_from(values)
        case mi.UnionType(types=types):
            return st.one_of(*[values_of(each) for each in types])
        case mi.ListType(item_type=item, min_length=least, max_length=most):
            return st.lists(values_of(item), min_size=least or 0, max_size=min(most or 5, 5))
        case mi.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=5)
        case mi.StructType():
            return objects_of(info.cls)
    raise NotImplementedError(f"no strategy for {info}")


def strip_anchors(pattern: str) -> str:
    """Return a pattern without its anchors, for a full match."""
    return pattern.removeprefix("^").removesuffix(r"(?![\s\S])")


def objects_of(cls: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of JSON objects of a struct type, with or without optional fields."""
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    required = {field.encode_name: values_of(field.type) for field in info.fields if field.required}
    optional = {
        field.encode_name: values_of(field.type) for field in info.fields if not field.required
    }
    if info.tag_field is not None:
        required[info.tag_field] = st.just(info.tag)
    return st.fixed_dictionaries(required, optional=optional)


def sample_of(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a JSON object of a struct type with the required fields only."""
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    fields = {} if info.tag_field is None else {info.tag_field: info.tag}
    for field in info.fields:
        if field.required:
            fields[field.encode_name] = _sample(field.type)
    return fields


def _sample(info: mi.Type) -> Any:
    match info:
        case mi.BoolType():
            return True
        case mi.IntType():
            return 1
        case mi.StrType(pattern=str(pattern)):
            return GRAMMARS[strip_anchors(pattern)][0][0]
        case mi.StrType():
            return "a"
        case mi.LiteralType(values=values):
            return values[0]
        case mi.ListType(item_type=item, min_length=least):
            return [_sample(item)] * (least or 0)
        case mi.StructType():
            return sample_of(info.cls)
    raise NotImplementedError(f"no sample of {info}")


def edges_of(cls: type[msgspec.Struct]) -> Iterator[Edge]:
    """Yield every bound of every field of a frame, including nested objects."""
    yield from _edges_in(tag_of(cls), (), cls)


def _edges_in(frame: str, path: tuple[str, ...], cls: type[msgspec.Struct]) -> Iterator[Edge]:
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    for field in info.fields:
        here = (*path, field.encode_name)
        for part in field.type.types if isinstance(field.type, mi.UnionType) else (field.type,):
            if isinstance(part, mi.StructType):
                yield from _edges_in(frame, here, part.cls)
            for bound, within, beyond in _bounds(part):
                yield Edge(frame, here, bound, within, beyond)


def _bounds(info: mi.Type) -> Iterator[tuple[str, Any, Any]]:
    match info:
        case mi.IntType(ge=int(ge), le=int(le)):
            yield "ge", ge, ge - 1
            yield "le", le, le + 1
        case mi.StrType(pattern=str(pattern)):
            within, beyond = GRAMMARS[strip_anchors(pattern)]
            for index, text in enumerate(beyond):
                yield f"grammar-{index}", within[min(index, len(within) - 1)], text
        case mi.StrType(min_length=int(least), max_length=int(most)):
            yield "max_length", "a" * most, "a" * (most + 1)
            yield "min_length", "a" * least, "a" * (least - 1)
        case mi.ListType(item_type=item, min_length=int(least), max_length=int(most)):
            yield "max_length", [_sample(item)] * most, [_sample(item)] * (most + 1)
            yield "min_length", [_sample(item)] * least, [_sample(item)] * (least - 1)
            for bound, within, beyond in _bounds(item):
                yield f"item-{bound}", [within] * least, [beyond] * least
        case mi.DictType(key_type=key, value_type=item, max_length=int(most)):
            full = {f"k{n}": _sample(item) for n in range(most + 1)}
            yield "max_length", dict(list(full.items())[:most]), full
            for bound, within, beyond in _bounds(key):
                yield f"key-{bound}", {within: _sample(item)}, {beyond: _sample(item)}
            for bound, within, beyond in _bounds(item):
                yield f"item-{bound}", {"k": within}, {"k": beyond}
        case mi.LiteralType(values=values):
            for value in values:
                yield f"one-of-{value}", value, value + 1 if isinstance(value, int) else "other"
        case mi.BoolType():
            yield "type", False, 0
        case _:
            return


def frame_with(edge: Edge, value: Any) -> bytes:
    """Return a minimal frame of the edge's type with `value` at its field."""
    cls: type[msgspec.Struct] = next(cls for cls in CLIENT_FRAMES if tag_of(cls) == edge.frame)
    whole = at = sample_of(cls)
    for name in edge.path[:-1]:
        info = mi.type_info(cls)
        assert isinstance(info, mi.StructType)
        field = next(field for field in info.fields if field.encode_name == name)
        parts = field.type.types if isinstance(field.type, mi.UnionType) else (field.type,)
        cls = next(part.cls for part in parts if isinstance(part, mi.StructType))
        at = at.setdefault(name, sample_of(cls))
    at[edge.path[-1]] = value
    return msgspec.json.encode(whole)
