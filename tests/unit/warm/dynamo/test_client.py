"""Each SDK failure becomes one error of ours, with a remedy."""

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


def answer(code: str, status: int = 400, **more: Any) -> ClientError:
    """An error that DynamoDB answered."""
    response = {
        "Error": {"Code": code, "Message": "why"},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return ClientError(response, "PutItem")  # type: ignore[arg-type]  # the few parts that count


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (answer("ProvisionedThroughputExceededException"), Throttled),
        (answer("ThrottlingException"), Throttled),
        (answer("RequestLimitExceeded"), Throttled),
        (answer("LimitExceededException"), Throttled),
        (answer("InternalServerError", 500), Unavailable),
        (answer("SomethingNew", 503), Unavailable),
        (answer("TransactionConflictException"), Contended),
        (answer("ExpiredTokenException"), Unavailable),
        (answer("ConditionalCheckFailedException"), ConditionFailed),
        (answer("ResourceInUseException"), Conflict),
        (answer("ResourceNotFoundException"), TableMissing),
        (answer("AccessDeniedException"), ConfigError),
        (answer("ValidationException"), CorruptData),
        (answer("SerializationException"), CorruptData),
        (answer("SomethingNew"), CorruptData),
        (EndpointConnectionError(endpoint_url=ENDPOINT), Unavailable),
        (ConnectTimeoutError(endpoint_url=ENDPOINT), Unavailable),
        (ReadTimeoutError(endpoint_url=ENDPOINT), Unavailable),
        (ConnectionResetError("reset"), Unavailable),
        (NoCredentialsError(), ConfigError),
    ],
)
def test_failure_becomes_an_error_of_ours_that_names_the_endpoint(
    failure: Exception, expected: type[ChatError]
) -> None:
    """No botocore error crosses the package border, and the message names the endpoint."""
    error = translate(failure, ENDPOINT)

    assert type(error) is expected
    assert ENDPOINT in str(error)


def test_failure_to_connect_says_how_to_start_a_server() -> None:
    """Without DynamoDB, the message says how to start a server."""
    error = translate(EndpointConnectionError(endpoint_url=ENDPOINT), ENDPOINT)

    assert "chatserver dev" in str(error)
    assert "CHAT_WARM_ENDPOINT" in str(error)


def test_failed_condition_carries_what_stood_there() -> None:
    """The failed condition returns the stored item, which saves a read."""
    stored = {"PK": {"S": "u#a"}}

    error = translate(answer("ConditionalCheckFailedException", Item=stored), ENDPOINT)

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
def test_cancelled_transaction_is_judged_by_its_reasons(
    codes: list[str], expected: type[ChatError]
) -> None:
    """A condition that does not hold is final; another writer in the way is not."""
    reasons = [{"Code": code} for code in codes]

    error = translate(answer("TransactionCanceledException", CancellationReasons=reasons), ENDPOINT)

    assert type(error) is expected


def test_cancelled_transaction_carries_what_stood_at_each_action() -> None:
    """The reasons are in the order of the actions, and so is what they carry."""
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"PK": {"S": "x"}}}]

    error = translate(answer("TransactionCanceledException", CancellationReasons=reasons), ENDPOINT)

    assert isinstance(error, ConditionFailed)
    assert error.stored == [None, {"PK": {"S": "x"}}]
