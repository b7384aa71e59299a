"""Checks of model requests against the published shapes: botocore's model, openai's types."""

from __future__ import annotations

import base64
import copy
import functools
import itertools
import urllib.parse
from collections.abc import Iterable
from typing import Any

import botocore.session
from botocore.model import OperationModel
from botocore.validate import ParamValidator
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter


@functools.cache
def _converse_stream() -> OperationModel:
    model = botocore.session.Session().get_service_model("bedrock-runtime")
    return model.operation_model("ConverseStream")


def check_converse_request(path: str, body: dict[str, Any]) -> None:
    """Check the body of a ConverseStream request. Raises AssertionError."""
    params = copy.deepcopy(body)
    params["modelId"] = urllib.parse.unquote(path.split("/")[2])
    for message in params["messages"]:
        for block in message["content"]:
            image = block.get("guardContent", block).get("image")
            if image is not None:
                source = image["source"]
                source["bytes"] = base64.b64decode(source["bytes"], validate=True)
    shape = _converse_stream().input_shape
    report = ParamValidator().validate(params, shape)
    assert not report.has_errors(), report.generate_report()
    _check_turns(params["messages"])


def _check_turns(messages: list[dict[str, Any]]) -> None:
    """Check that roles alternate, the user is first, and each tool use precedes its result."""
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    for before, after in itertools.pairwise(messages):
        uses = [block["toolUse"]["toolUseId"] for block in before["content"] if "toolUse" in block]
        results = [
            block["toolResult"]["toolUseId"] for block in after["content"] if "toolResult" in block
        ]
        assert uses == results


@functools.cache
def _completion() -> TypeAdapter[Any]:
    return TypeAdapter(CompletionCreateParamsStreaming)


def check_completion_request(body: dict[str, Any]) -> None:
    """Check the body of a streamed chat completion. Raises ValidationError, AssertionError."""
    checked = _completion().validate_python(body)
    _iterate(checked)
    assert set(body) <= set(CompletionCreateParamsStreaming.__annotations__)
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    assert calls == [
        message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"
    ]


def _iterate(value: Any) -> None:
    """Consume iterators, which pydantic validates lazily."""
    if isinstance(value, dict):
        for each in value.values():
            _iterate(each)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for each in value:
            _iterate(each)
