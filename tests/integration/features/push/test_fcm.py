"""FCM with a stub service: requests and responses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from chatserver import config
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.errors import ConfigError
from chatserver.features.push.model import Notice, Subscription
from chatserver.features.push.providers.fcm import SCOPE, Fcm, ServiceAccount
from chatserver.features.push.providers.interface import PushOutcome
from chatserver.outbound.http_client import open_outbound
from tests.support.servers.push_service import PushService, Reply

pytestmark = pytest.mark.constants({"chatserver.features.push.worker.push_worker.POLL_MS": 20})

SEND = "/v1/projects/our-project/messages:send"
KEY = rsa.generate_private_key(65537, 2048)
PHONE = Subscription("s", UserId("bob"), "fcm", "phone-token")
NOTICE = Notice(
    ChatId("c1"), Seq(7), 1, UserId("alice"), "Alice", "Team", "Lunch?", unread=2, badge=5
)


@pytest.fixture
async def fcm(push_service: PushService) -> AsyncIterator[Fcm]:
    """The FCM provider with a service account whose token URL is the stub service."""
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {
        "project_id": "our-project",
        "client_email": "push@our-project.example",
        "private_key": pem,
        "private_key_id": "k1",
        "token_uri": f"{push_service.url}/token",
    }
    granted = json.dumps({"access_token": "granted", "expires_in": 3600})
    push_service.set_replies("/token", Reply(200, body=granted))
    async with open_outbound(config.Outbound(allow_private=["127.0.0.0/8"])) as outbound:
        yield Fcm(
            outbound=outbound,
            account=ServiceAccount(json.dumps(account)),
            clock=SystemClock(),
            url=push_service.url,
        )


async def test_fcm_request_has_the_documented_fields(fcm: Fcm, push_service: PushService) -> None:
    """Two messages share one access token."""
    for _ in range(2):
        assert (await fcm.send(PHONE, NOTICE)).outcome is PushOutcome.SENT

    token_request, *sent = push_service.taken
    form = parse_qs(token_request.body.decode())
    assertion = jwt.decode(
        form["assertion"][0], KEY.public_key(), ["RS256"], audience=f"{push_service.url}/token"
    )
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert (assertion["iss"], assertion["scope"]) == ("push@our-project.example", SCOPE)
    assert [one.path for one in sent] == [SEND, SEND]
    assert sent[0].headers["authorization"] == "Bearer granted"
    message = json.loads(sent[0].body)["message"]
    assert message["token"] == "phone-token"
    assert message["notification"] == {"title": "Alice in Team", "body": "Lunch?"}
    assert message["data"] == {"chat": "c1", "seq": "7", "sender": "alice"}
    assert message["android"]["collapse_key"] == NOTICE.topic
    assert message["android"]["ttl"] == "86400s"
    assert message["android"]["notification"] == {"tag": "c1", "notification_count": 5}
    assert message["apns"]["headers"]["apns-collapse-id"] == NOTICE.topic
    assert message["apns"]["payload"]["aps"]["badge"] == 5


async def test_fcm_message_with_long_text_is_shortened(fcm: Fcm, push_service: PushService) -> None:
    """FCM refuses messages above 4,096 bytes."""
    long = dataclasses.replace(NOTICE, text="x" * 4000, name="n" * 200)

    await fcm.send(PHONE, long)

    message = json.loads(push_service.taken[-1].body)["message"]
    assert message["notification"]["body"] == "x" * 199 + "…"
    assert len(message["notification"]["title"]) < 100


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (404, "UNREGISTERED", PushOutcome.GONE),
        (403, "SENDER_ID_MISMATCH", PushOutcome.GONE),
        (404, "", PushOutcome.REFUSED),
        (400, "INVALID_ARGUMENT", PushOutcome.REFUSED),
        (429, "QUOTA_EXCEEDED", PushOutcome.BUSY),
        (503, "UNAVAILABLE", PushOutcome.DOWN),
        (500, "INTERNAL", PushOutcome.UNKNOWN),
        (401, "", PushOutcome.DOWN),
    ],
)
async def test_fcm_error_has_an_outcome_by_its_code(
    fcm: Fcm, push_service: PushService, status: int, code: str, outcome: PushOutcome
) -> None:
    """`GONE` deletes the device, except for a 404 without an error code."""
    body = json.dumps({"error": {"details": [{"errorCode": code}]}})
    push_service.set_replies(SEND, Reply(status, {"Retry-After": "3"}, body))

    assert (await fcm.send(PHONE, NOTICE)).outcome is outcome


async def test_fcm_without_access_token_sends_nothing(fcm: Fcm, push_service: PushService) -> None:
    """An error of the service account is temporary and deletes no devices."""
    push_service.set_replies("/token", Reply(400, body='{"error":"invalid_grant"}'))

    assert (await fcm.send(PHONE, NOTICE)).outcome is PushOutcome.DOWN
    assert [one.path for one in push_service.taken] == ["/token"]


def test_invalid_fcm_account_is_refused_without_printing_it() -> None:
    """The setting contains a private key."""
    for text in ("", "[]", '{"project_id": "p", "private_key": "secret"}'):
        with pytest.raises(ConfigError) as refused:
            ServiceAccount(text)
        assert "secret" not in str(refused.value)
