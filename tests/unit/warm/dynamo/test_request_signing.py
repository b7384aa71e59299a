"""Signatures of DynamoDB requests equal the signatures of the SDK."""

from __future__ import annotations

import datetime

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from chatserver.warm.dynamo.request_signing import RequestSigner

NOW = datetime.datetime(2026, 3, 4, 23, 59, 58, 700_000, tzinfo=datetime.UTC)
ENDPOINTS = [
    "http://127.0.0.1:8000/",
    "http://[::1]:8000/",
    "http://dynamodb:80/",
    "https://dynamodb.eu-central-1.amazonaws.com/",
    "https://DynamoDB.us-east-1.amazonaws.com:443/",
    "https://proxy.example:8443/a%20path/~b/../c/",
]


def sdk_headers(
    monkeypatch: pytest.MonkeyPatch,
    now: datetime.datetime,
    credentials: ReadOnlyCredentials,
    url: str,
    body: bytes,
) -> dict[str, str]:
    """Return the headers that the SDK signs for a request."""
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: now)
    headers = {
        "Accept-Encoding": "identity",
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.PutItem",
    }
    request = AWSRequest("POST", url, headers, body)
    SigV4Auth(credentials, "dynamodb", "eu-central-1").add_auth(request)
    return dict(request.headers)


@pytest.mark.parametrize("url", ENDPOINTS)
@pytest.mark.parametrize("token", [None, "", "session+token/=="])
def test_sign_any_endpoint_and_credentials_returns_the_sdk_headers(
    monkeypatch: pytest.MonkeyPatch, url: str, token: str | None
) -> None:
    """The signature does not depend on which of the two signers is used."""
    signer = RequestSigner(url, "eu-central-1")
    credentials = ReadOnlyCredentials("AKID", "secret/+", token)
    for body in (b"", b"{}", "{'text': 'é 漢'}".encode() * 1000):
        expected = sdk_headers(monkeypatch, NOW, credentials, url, body)

        signed = signer.sign(credentials, "DynamoDB_20120810.PutItem", body, NOW.timestamp())

        assert signed == expected


def test_sign_after_the_day_or_the_secret_changed_derives_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cached key is used for its secret and its day only."""
    signer = RequestSigner(ENDPOINTS[0], "eu-central-1")
    for now in (NOW, NOW + datetime.timedelta(seconds=2), NOW):
        for secret in ("one", "two", "one"):
            credentials = ReadOnlyCredentials("AKID", secret, None)
            expected = sdk_headers(monkeypatch, now, credentials, ENDPOINTS[0], b"{}")

            target = "DynamoDB_20120810.PutItem"
            assert signer.sign(credentials, target, b"{}", now.timestamp()) == expected
