"""Translation of SDK errors into the errors of the product."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from chatserver.errors import ChatError, ConfigError, Conflict, CorruptData, Unavailable
from chatserver.warm.dynamo.client import (
    ConditionFailed,
    Contended,
    TableMissing,
    Throttled,
    translate,
)

ENDPOINT = "http://127.0.0.1:8000"


def error_response(code: str, status: int = 400, **more: Any) -> ClientError:
    """Return an error response of DynamoDB."""
    response = {
        "Error": {"Code": code, "Message": "why"},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return ClientError(response, "PutItem")  # type: ignore[arg-type]  # only the fields that are used


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (error_response("ProvisionedThroughputExceededException"), Throttled),
        (error_response("ThrottlingException"), Throttled),
        (error_response("RequestLimitExceeded"), Throttled),
        (error_response("LimitExceededException"), Throttled),
        (error_response("InternalServerError", 500), Unavailable),
        (error_response("SomethingNew", 503), Unavailable),
        (error_response("TransactionConflictException"), Contended),
        (error_response("ExpiredTokenException"), Unavailable),
        (error_response("ConditionalCheckFailedException"), ConditionFailed),
        (error_response("ResourceInUseException"), Conflict),
        (error_response("ResourceNotFoundException"), TableMissing),
        (error_response("AccessDeniedException"), ConfigError),
        (error_response("ValidationException"), CorruptData),
        (error_response("SerializationException"), CorruptData),
        (error_response("SomethingNew"), CorruptData),
        (EndpointConnectionError(endpoint_url=ENDPOINT), Unavailable),
        (ConnectTimeoutError(endpoint_url=ENDPOINT), Unavailable),
        (ReadTimeoutError(endpoint_url=ENDPOINT), Unavailable),
        (ConnectionResetError("reset"), Unavailable),
        (NoCredentialsError(), ConfigError),
    ],
)
def test_translate_returns_a_product_error_with_the_endpoint(
    failure: Exception, expected: type[ChatError]
) -> None:
    """Callers of the package never get a botocore error."""
    error = translate(failure, ENDPOINT)

    assert type(error) is expected
    assert ENDPOINT in str(error)


def test_translate_connection_failure_explains_how_to_start_a_server() -> None:
    """The message names the command and the setting."""
    error = translate(EndpointConnectionError(endpoint_url=ENDPOINT), ENDPOINT)

    assert "chatserver dev" in str(error)
    assert "CHAT_WARM_ENDPOINT" in str(error)


def test_failed_condition_contains_the_stored_item() -> None:
    """The stored item in the error saves a read."""
    stored = {"PK": {"S": "u#a"}}

    error = translate(error_response("ConditionalCheckFailedException", Item=stored), ENDPOINT)

    assert isinstance(error, ConditionFailed)
    assert error.stored == [stored]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["None", "ConditionalCheckFailed"], ConditionFailed),
        (["TransactionConflict", "ConditionalCheckFailed"], ConditionFailed),
        (["TransactionConflict", "None"], Contended),
        (["ThrottlingError"], Throttled),
        (["ProvisionedThroughputExceeded"], Throttled),
        (["ValidationError"], CorruptData),
        (["ItemCollectionSizeLimitExceeded"], CorruptData),
        ([], CorruptData),
    ],
)
def test_canceled_transaction_is_translated_by_its_reasons(
    codes: list[str], expected: type[ChatError]
) -> None:
    """A failed condition is permanent; a conflict with another writer is temporary."""
    reasons = [{"Code": code} for code in codes]

    error = translate(
        error_response("TransactionCanceledException", CancellationReasons=reasons), ENDPOINT
    )

    assert type(error) is expected


def test_canceled_transaction_contains_the_stored_item_of_each_action() -> None:
    """The stored items are in the order of the actions."""
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"PK": {"S": "x"}}}]

    error = translate(
        error_response("TransactionCanceledException", CancellationReasons=reasons), ENDPOINT
    )

    assert isinstance(error, ConditionFailed)
    assert error.stored == [None, {"PK": {"S": "x"}}]
