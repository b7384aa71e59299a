"""The AsyncAPI document matches the types, and the committed file is current."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chatserver.protocol.error_codes import CODES, Close
from deploy.documents import asyncapi_document as asyncapi
from tests.unit.protocol.shapes import CLIENT_FRAMES, SERVER_FRAMES, tag_of

COMMITTED = Path(__file__).parents[3] / "docs" / "asyncapi.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Return the document, decoded from its JSON."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(asyncapi.build_document()))
    return decoded


def test_committed_document_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    """A change of the frames is a change of the document.

    When this fails: python -m deploy.documents.asyncapi_document > docs/asyncapi.json
    """
    asyncapi.main()

    assert COMMITTED.read_text() == capsys.readouterr().out


@pytest.mark.parametrize("cls", [*CLIENT_FRAMES, *SERVER_FRAMES], ids=lambda cls: cls.__name__)
def test_document_has_every_frame(document: dict[str, Any], cls: type[msgspec.Struct]) -> None:
    """Each frame type is a message of the channel, with its tag and its fields."""
    name = cls.__name__

    message = document["components"]["messages"][name]
    schema = document["components"]["schemas"][name]

    assert document["channels"]["chat"]["messages"][name] == {
        "$ref": f"#/components/messages/{name}"
    }
    assert message["name"] == tag_of(cls)
    assert message["summary"]
    assert schema["properties"]["type"] == {"enum": [tag_of(cls)]}
    assert set(schema["properties"]) == {"type", *cls.__struct_encode_fields__}


@pytest.mark.parametrize("cls", CLIENT_FRAMES, ids=tag_of)
def test_document_lists_the_answers_of_each_request(
    document: dict[str, Any], cls: type[msgspec.Struct]
) -> None:
    """A frame with an `id` has responses, `error` among them; one without has none."""
    operation = document["operations"][tag_of(cls)]

    is_request = "id" in cls.__struct_encode_fields__ or tag_of(cls) == "hello"
    responses = [ref["$ref"] for ref in operation.get("reply", {}).get("messages", [])]
    assert bool(responses) == is_request
    if is_request:
        assert responses[-1] == "#/channels/chat/messages/Error"
        assert len(responses) >= 2


def test_document_has_every_error_code_and_close_code(document: dict[str, Any]) -> None:
    """The tables of codes are in the document and say when to reconnect."""
    closes = document["x-close-codes"]

    assert document["x-error-codes"].keys() == CODES.keys()
    assert closes.keys() == {str(int(code)) for code in Close}
    assert closes["3000"]["reconnect"]
    assert not closes["3500"]["reconnect"]


def test_document_references_resolve(document: dict[str, Any]) -> None:
    """Every `$ref` points to an existing part of the document."""
    for ref in references_in(document):
        at: Any = document
        for part in ref.removeprefix("#/").split("/"):
            at = at[part]


def references_in(value: Any) -> Iterator[str]:
    """Yield every `$ref` in a document."""
    match value:
        case {"$ref": str(ref)}:
            yield ref
        case dict():
            for each in value.values():
                yield from references_in(each)
        case list():
            for each in value:
                yield from references_in(each)


def test_document_has_the_bounds_of_texts(document: dict[str, Any]) -> None:
    """Bounds that are checked outside of the types are in the document too."""
    schemas = document["components"]["schemas"]

    assert schemas["Send"]["properties"]["body"]["maxLength"] == 4000
    assert "16384 bytes" in schemas["Send"]["properties"]["body"]["description"]
    name = schemas["CreateChat"]["properties"]["name"]["anyOf"]
    assert {"type": "string", "minLength": 1, "maxLength": 80} in name
