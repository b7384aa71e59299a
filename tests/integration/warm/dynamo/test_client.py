"""The DynamoDB client: errors, retries, deadlines and invalid responses."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from chatserver.errors import ConfigError, Conflict, CorruptData, Unavailable
from chatserver.warm.dynamo.client import ATTEMPTS_MAX, TableMissing
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.dynamo.http_transport import find_proxy
from chatserver.warm.messages.messages import Messages
from tests.integration.warm.support import (
    NOT_DYNAMODB,
    Faults,
    Tables,
    batch,
    message,
    refuse,
    reply,
    settings_for,
)
from tests.support.servers.processes import free_port

LIST: dict[str, Any] = {"Limit": 1}
# One call uses the AWS SDK, the other the product's own transport.
both_transports = pytest.mark.parametrize(
    ("operation", "request_of"),
    [
        ("list_tables", LIST),
        ("get_item", {"TableName": "t", "Key": {"pk": {"S": "a"}, "sk": {"S": "a"}}}),
    ],
    ids=["sdk", "transport"],
)


@contextlib.asynccontextmanager
async def serve_response(answer: bytes | None) -> AsyncIterator[str]:
    """Start a server that sends `answer` to each request and closes; with None it sends nothing."""
    is_stopped = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is None:
            await is_stopped.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        is_stopped.set()


@both_transports
async def test_call_to_a_closed_port_names_it_and_how_to_start_a_server(
    no_backoff: None, operation: str, request_of: dict[str, Any]
) -> None:
    """The error has the address and the command that starts a local server."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    async with open_dynamodb(settings_for(endpoint)) as client:
        with pytest.raises(Unavailable) as caught:
            await client.call(operation, request_of)

    assert endpoint in caught.value.message
    assert "chatserver dev" in caught.value.message


@both_transports
async def test_call_to_a_hanging_server_ends_at_the_deadline(
    operation: str, request_of: dict[str, Any]
) -> None:
    """The deadline covers all attempts together."""
    async with (
        serve_response(None) as endpoint,
        open_dynamodb(settings_for(endpoint, call_timeout_s=0.3)) as client,
    ):
        started = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable, match=endpoint):
            await client.call(operation, request_of)
        took_s = asyncio.get_running_loop().time() - started

    assert took_s < 20  # without the deadline it would never end


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
    ids=["closed", "cut short", "not http"],
)
@both_transports
async def test_call_with_a_truncated_response_is_unavailable(
    answer: bytes, no_backoff: None, operation: str, request_of: dict[str, Any]
) -> None:
    """The outcome is unknown, and the response is not interpreted."""
    async with serve_response(answer) as endpoint, open_dynamodb(settings_for(endpoint)) as client:
        with pytest.raises(Unavailable, match=endpoint):
            await client.call(operation, request_of)


PAGE = b"<html>Service Unavailable</html>"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nx-amz-crc32: 1\r\nContent-Length: 2\r\n\r\n{}", "checksum"),
        (b"HTTP/1.1 200 OK\r\nx-amz-crc32: x\r\nContent-Length: 2\r\n\r\n{}", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[}", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "is not DynamoDB"),
        (b"HTTP/1.1 503 X\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE), "503"),
    ],
    ids=["damaged", "no checksum", "no json", "no request id", "proxy page"],
)
async def test_damaged_or_foreign_response_is_unavailable(
    answer: bytes, error: str, no_backoff: None
) -> None:
    """A response is used only if it is complete and from DynamoDB."""
    async with serve_response(answer) as endpoint, open_dynamodb(settings_for(endpoint)) as client:
        with pytest.raises(Unavailable, match=error):
            await client.call("scan", {"TableName": "t"})


async def test_proxy_of_the_environment_is_used_except_for_excluded_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HTTP_PROXY and NO_PROXY apply as in the AWS SDK."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.9:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    assert find_proxy("http://dynamodb.example:8000") == "http://127.0.0.9:3128"
    assert find_proxy("https://dynamodb.example") is None
    assert find_proxy("http://127.0.0.1:8000") is None


@pytest.mark.parametrize(
    "failure",
    [
        refuse("ThrottlingException"),
        refuse("ProvisionedThroughputExceededException"),
        refuse("InternalServerError", 500),
        refuse("ServiceUnavailable", 503),
        lambda _: ConnectionResetError("reset"),
        lambda _: ClientPayloadError("cut"),
    ],
    ids=["throttled", "over capacity", "500", "503", "reset", "cut"],
)
async def test_call_with_temporary_errors_succeeds(
    bare: Tables, no_backoff: None, failure: Any
) -> None:
    """Temporary errors are retried within the call."""
    bare.faults.add("ListTables", failure, failure)

    answer = await bare.client.call("list_tables", LIST)

    assert "TableNames" in answer
    assert len(bare.faults.requests) == 3


async def test_failing_call_is_attempted_a_fixed_number_of_times(
    bare: Tables, no_backoff: None
) -> None:
    """There is one layer of retries: the AWS SDK adds none."""
    bare.faults.add("ListTables", *[refuse("InternalServerError", 500)] * 50)

    with pytest.raises(Unavailable, match="InternalServerError"):
        await bare.client.call("list_tables", LIST)

    assert len(bare.faults.requests) == ATTEMPTS_MAX


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (refuse("ConditionalCheckFailedException"), Conflict),
        (refuse("ValidationException"), CorruptData),
        (refuse("AccessDeniedException"), ConfigError),
    ],
)
async def test_call_with_a_permanent_error_is_not_retried(
    bare: Tables, failure: Any, expected: type[Exception]
) -> None:
    """The error is raised after one request."""
    bare.faults.add("ListTables", failure)

    with pytest.raises(expected):
        await bare.client.call("list_tables", LIST)

    assert len(bare.faults.requests) == 1


async def test_call_waits_between_attempts_within_its_deadline(dynamodb: str) -> None:
    """With real backoff, the error at the deadline names the last cause."""
    settings = settings_for(dynamodb, call_timeout_s=0.4)
    loop, message = asyncio.get_running_loop(), ""
    async with open_dynamodb(settings) as client:
        faults = Faults(client)
        faults.add("ListTables", *[refuse("ThrottlingException")] * 1000)
        give_up = loop.time() + 30
        # On a slow machine, the deadline may come before the second attempt.
        while len(faults.requests) < 2 and loop.time() < give_up:
            faults.requests.clear()
            began = loop.time()
            with pytest.raises(Unavailable, match=r"timed out after 0\.4 s") as caught:
                await client.call("list_tables", LIST)
            took_s, message = loop.time() - began, caught.value.message

    waits = len(faults.requests) - 1
    assert waits >= 1
    assert took_s >= 0.4
    assert re.search(r"0\.4 s; last error: .*ThrottlingException", message)


async def test_client_is_usable_after_a_canceled_call(bare: Tables) -> None:
    """A canceled call closes its connection but not the pool."""
    for _ in range(5):
        call = asyncio.ensure_future(bare.client.call("list_tables", LIST))
        await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    assert "TableNames" in await bare.client.call("list_tables", LIST)


async def test_repository_without_its_table_names_the_command_that_creates_it(bare: Tables) -> None:
    """The error tells operators how to create the tables."""
    repository = Messages(bare.client)

    with pytest.raises(TableMissing, match="chatserver tables apply"):
        await repository.find_head("d-1")


async def test_response_of_another_server_is_unavailable(tables: Tables, no_backoff: None) -> None:
    """It counts neither as an empty table nor as a stored batch."""
    tables.faults.add("Query", *[reply(NOT_DYNAMODB)] * 50)
    tables.faults.add("BatchWriteItem", *[reply(NOT_DYNAMODB)] * 50)
    repository = Messages(tables.client)

    with pytest.raises(Unavailable, match="is not DynamoDB"):
        await repository.find_head("d-1")
    with pytest.raises(Unavailable, match="is not DynamoDB"):
        await repository.put_batch(batch(message(1)), timeout_s=20)


async def test_client_without_credentials_names_the_missing_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first call raises a ConfigError."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    settings = settings_for("http://127.0.0.1:1", access_key=None, secret_key=None)

    async with open_dynamodb(settings) as client:
        with pytest.raises(ConfigError, match="CHAT_WARM_ACCESS_KEY"):
            await client.call("list_tables", LIST)


async def test_client_with_half_a_key_does_not_open(dynamodb: str) -> None:
    """An invalid setting prevents the start."""
    settings = settings_for(dynamodb, secret_key=None)

    with pytest.raises(ConfigError, match="warm"):
        async with open_dynamodb(settings):
            pass
