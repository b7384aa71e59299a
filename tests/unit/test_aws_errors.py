"""Errors of AWS calls without a response: what the operator should do."""

from __future__ import annotations

import pytest
from botocore.exceptions import EndpointConnectionError

from chatserver.aws_errors import translate_no_response


@pytest.mark.parametrize(
    ("name", "is_local"),
    [
        ("DynamoDB at http://127.0.0.1:8000", True),
        ("S3 at http://localhost:9000", True),
        ("DynamoDB at https://dynamodb.eu-central-1.amazonaws.com", False),
        ("DynamoDB in eu-central-1", False),
    ],
)
def test_advice_to_start_a_server_is_given_for_loopback_only(name: str, is_local: bool) -> None:
    """In production, the network is the likely cause."""
    error = translate_no_response(
        EndpointConnectionError(endpoint_url="x"), name, "warm", public="try again"
    )

    assert ("chatserver dev" in error.message) == is_local
    assert ("check the network" in error.message) != is_local
    assert "CHAT_WARM_ENDPOINT" in error.message
    assert error.public_message == "try again"
