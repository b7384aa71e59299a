"""The one door to DynamoDB: deadlines, one layer of retries, and our errors only.

The SDK's own retries are off and its parameter validation too: we build the requests, and checking
them again costs a third of a call. `translate` turns everything that botocore raises into our
tree, so nothing of it leaves the package.

Every call asks for what it takes, and its answer is metered (`chatserver.warm.metering`) under what
the client is for: `for_feature`. With a tenant, keys get its mark here (`chatserver.warm.tenancy`).

All that goes through here may run twice, when an answer was lost and the call is tried again. Each
repository's writes are therefore idempotent or conditional; see there.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import aioboto3
import aiohttp
import stamina
from aiobotocore.config import AioConfig
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
)

from chatserver.config import Warm
from chatserver.domain.spending import Feature
from chatserver.errors import ChatError, ConfigError, Conflict, CorruptData, Unavailable
from chatserver.sdkfailures import translate_silence
from chatserver.warm.metering import Failure, Meter, ask_for_units
from chatserver.warm.tenancy import Tenancy

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

T = TypeVar("T")
Item = dict[str, dict[str, Any]]  # as DynamoDB writes it: {"name": {"S": "alice"}}

CONNECT_TIMEOUT_S = 2.0
RETRY_WAIT_S = 0.05  # doubles with each try
RETRY_JITTER_S = 0.1
RETRY_WAIT_S_MAX = 2.0

_THROTTLED = {
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
}
_PASSING = {
    "ExpiredTokenException",
    "InternalServerError",
    "RequestTimeout",
    "ServiceUnavailable",
    "TransactionConflictException",
    "TransactionInProgressException",
}
_REFUSED_CREDENTIALS = {
    "AccessDeniedException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
}
# In the reasons of a cancelled transaction: another writer or a limit got in the way.
_PASSING_REASONS = {"TransactionConflict"}
_THROTTLED_REASONS = {
    "ProvisionedThroughputExceeded",
    "RequestLimitExceeded",
    "ThrottlingError",
}


class Throttled(Unavailable):
    """A table, a partition of it or the account is at its limit."""


class TableMissing(ConfigError):
    """A table does not exist."""


class ConditionFailed(Conflict):
    """The condition of a write did not hold.

    `stored` has, for each action of the request, what stood there instead, as far as it was asked
    for with ``ReturnValuesOnConditionCheckFailure``.
    """

    def __init__(self, message: str, stored: list[Item | None]) -> None:
        super().__init__(message)
        self.stored = stored


class IteratorExpired(Conflict):
    """The place in a Stream was asked for too long ago (15 minutes); ask for it again."""


class StreamTrimmed(CorruptData):
    """What was asked for has left the Stream: records are kept for 24 hours."""


class DynamoClient:
    """Calls DynamoDB and answers with its answer or with one of our errors."""

    def __init__(self, sdk: DynamoDBClient, settings: Warm) -> None:
        self._sdk = sdk
        self._settings = settings
        self._tenancy = Tenancy(settings) if settings.tenant else None
        self.feature: Feature = "other"
        self.meter = Meter(settings)
        self.endpoint: str = sdk.meta.endpoint_url

    def for_feature(self, feature: Feature) -> Self:
        """Return this client for calls that are metered under `feature`."""
        client = copy.copy(self)
        client.feature = feature
        return client

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Do one operation, named as the SDK does (``"get_item"``), tried again when that helps.

        Guarantees:
            Bounded: `attempts_max` tries with jittered backoff, within `call_timeout_s` in all.
            A write may have run although this raises `Unavailable`, and may run twice.
            Cancellation: safe; the connection in use is dropped.

        Raises:
            Unavailable: no answer, or DynamoDB could not do it now.
            ConditionFailed: a condition of the request did not hold.
            CorruptData: DynamoDB refuses the request for what it says.
            ConfigError: the table, or the right to use it, is absent.
        """
        return await self.retry(lambda: self.call_once(operation, request))

    async def call_once(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Do one operation, once, for callers whose own loop is inside `retry`. Raises as `call`"""
        sent = request
        if self._tenancy is not None:
            sent = self._tenancy.outgoing(operation, request)
        sent = ask_for_units(operation, sent)
        try:
            answer: dict[str, Any] = await getattr(self._sdk, operation)(**sent)
        except (BotoCoreError, ClientError, aiohttp.ClientError, OSError) as exc:
            error = translate(exc, self.endpoint)
            self.meter.note_failure(self.feature, operation, _failure_of(error))
            if self._tenancy is not None and isinstance(error, ConditionFailed):
                error.stored = self._tenancy.stored(operation, request, error.stored)
            raise error from exc
        if "RequestId" not in answer["ResponseMetadata"]:
            # Something else that says 200 must not pass for a write that was done.
            raise Unavailable(f"DynamoDB at {self.endpoint}: what answers there is no DynamoDB")
        if self._tenancy is not None:
            answer = self._tenancy.incoming(operation, request, answer)
        self.meter.note(self.feature, operation, request, answer)
        return answer

    async def retry(self, attempt: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Run `attempt` until it does not raise `Unavailable`: the one layer of retries.

        Raises:
            Unavailable: the last one, when tries or time are used up.
        """
        timeout_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        last: Unavailable | None = None
        try:
            async with asyncio.timeout(timeout_s):
                async for trial in stamina.retry_context(
                    on=Unavailable,
                    attempts=self._settings.attempts_max,
                    timeout=None,
                    wait_initial=RETRY_WAIT_S,
                    wait_jitter=RETRY_JITTER_S,
                    wait_max=RETRY_WAIT_S_MAX,
                ):
                    with trial:
                        if trial.num > 1:
                            self.meter.note_retry(self.feature)
                        try:
                            return await attempt()
                        except Unavailable as exc:
                            last = exc
                            raise
        except TimeoutError as exc:
            why = f"; before that: {last.message}" if last else ""
            raise self._too_slow(timeout_s, why) from (last or exc)
        raise AssertionError("stamina ends with an answer or an error")

    @contextlib.asynccontextmanager
    async def deadline(self, timeout_s: float | None = None, what: str = "") -> AsyncIterator[None]:
        """Bound a block of several calls; `call_timeout_s` unless told.

        Raises:
            Unavailable: time is up.
        """
        timeout_s = self._settings.call_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as exc:
            raise self._too_slow(timeout_s, f", waiting for {what}" if what else "") from exc

    def _too_slow(self, timeout_s: float, why: str) -> Unavailable:
        return Unavailable(f"DynamoDB at {self.endpoint}: not done in {timeout_s:g} s{why}")


@contextlib.asynccontextmanager
async def open_dynamodb(settings: Warm) -> AsyncIterator[DynamoClient]:
    """Open a pool of connections to DynamoDB; connects with the first call.

    Raises:
        ConfigError: the endpoint is no URL, or only one of the two keys is set.
    """
    async with _open(settings, "dynamodb", settings.endpoint) as sdk:
        yield DynamoClient(sdk, settings)


@contextlib.asynccontextmanager
async def open_dynamodb_streams(settings: Warm) -> AsyncIterator[DynamoClient]:
    """Open a pool of connections to DynamoDB Streams, which has an endpoint of its own on AWS.

    Raises as `open_dynamodb`.
    """
    endpoint = settings.streams_endpoint or settings.endpoint
    async with _open(settings, "dynamodbstreams", endpoint) as sdk:
        yield DynamoClient(sdk, settings)


@contextlib.asynccontextmanager
async def _open(settings: Warm, service: Any, endpoint: str | None) -> AsyncIterator[Any]:
    secret = settings.secret_key
    if (settings.access_key is None) != (secret is None):
        raise ConfigError(["warm.access_key, warm.secret_key: set both or neither"])
    config = AioConfig(
        connect_timeout=min(CONNECT_TIMEOUT_S, settings.call_timeout_s),
        # Half of the deadline: a lost answer leaves time for another try.
        read_timeout=settings.call_timeout_s / 2,
        max_pool_connections=settings.connections_max,
        retries={"total_max_attempts": 1},
        parameter_validation=False,
        tcp_keepalive=True,
    )
    # Whoever calls logs what finally failed; each try on the way there is not worth a line.
    stamina.instrumentation.set_on_retry_hooks([])
    async with contextlib.AsyncExitStack() as stack:
        try:
            session = aioboto3.Session(
                aws_access_key_id=settings.access_key,
                aws_secret_access_key=secret.get_secret_value() if secret else None,
                region_name=settings.region,
            )
            sdk = await stack.enter_async_context(
                session.client(service, endpoint_url=endpoint, config=config)
            )
        except ValueError as exc:
            raise ConfigError([f"warm.endpoint (CHAT_WARM_ENDPOINT): {exc}"]) from exc
        except BotoCoreError as exc:
            raise translate(exc, endpoint or "AWS") from exc
        yield sdk


_OF_STREAMS: dict[str, type[ChatError]] = {
    "ExpiredIteratorException": IteratorExpired,
    "TrimmedDataAccessException": StreamTrimmed,
}


def translate(exc: Exception, endpoint: str) -> ChatError:
    """Return our error for one of the SDK's."""
    where = f"DynamoDB at {endpoint}"
    if isinstance(exc, ClientError):
        return _translate_answer(exc, where)
    return translate_silence(exc, where, "warm")


def _translate_answer(exc: ClientError, where: str) -> ChatError:
    response: dict[str, Any] = {**exc.response}
    error = response.get("Error", {})
    code = error.get("Code", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{where}: {exc.operation_name}: {code}: {error.get('Message', '')}"
    if code in _THROTTLED:
        return Throttled(text)
    if code in _PASSING or status >= 500:
        return Unavailable(text)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(text, [response.get("Item")])
    if code == "TransactionCanceledException":
        return _translate_reasons(response.get("CancellationReasons") or [], where)
    if code == "ResourceInUseException":
        return Conflict(text)
    if code == "ResourceNotFoundException":
        return TableMissing([f"{text}: `chatserver tables apply` creates the tables"])
    if code in _REFUSED_CREDENTIALS:
        return ConfigError([text])
    return _OF_STREAMS.get(code, CorruptData)(text)


def _translate_reasons(reasons: list[dict[str, Any]], where: str) -> ChatError:
    """Return our error for a cancelled transaction, from why each of its actions was."""
    codes = {str(reason.get("Code")) for reason in reasons}
    text = f"{where}: transaction cancelled: {', '.join(sorted(codes - {'None'}))}"
    if "ConditionalCheckFailed" in codes:
        return ConditionFailed(text, [reason.get("Item") for reason in reasons])
    if codes & _THROTTLED_REASONS:
        return Throttled(text)
    if codes & _PASSING_REASONS:
        return Unavailable(text)
    return CorruptData(text)


def _failure_of(error: ChatError) -> Failure:
    match error:
        case Throttled():
            return "throttled"
        case ConditionFailed():
            return "condition"
        case Unavailable():
            return "failed"
        case _:
            return "refused"
