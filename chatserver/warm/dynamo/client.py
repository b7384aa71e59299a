"""DynamoDB client: deadlines, a single retry layer and error translation.

Item operations are sent by `http_transport`, all others by the SDK, whose own retries and parameter
validation are off. `translate` maps every botocore exception to `chatserver.errors`, so no SDK
exception leaves the package.

Each call asks DynamoDB for its consumed capacity, which is metered under the client's feature
(`for_feature`, `chatserver.warm.dynamo.metering`). With a tenant, keys are prefixed here
(`chatserver.warm.dynamo.tenancy`). With client-side encryption, attributes are encrypted and
decrypted here (`chatserver.warm.encryption.encrypted_fields`).

Any call may run twice: it is retried if its response is lost. The writes of all repositories are
therefore idempotent or conditional.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError

from chatserver.aws_errors import translate_no_response
from chatserver.config import Warm
from chatserver.domain.access.tenants import WriteFence
from chatserver.domain.jitter import add_jitter
from chatserver.encryption.value_cipher import ValueCipher
from chatserver.errors import (
    DYNAMODB_DOWN,
    ChatError,
    ConfigError,
    Conflict,
    CorruptData,
    Unavailable,
)
from chatserver.telemetry.dynamodb_usage import Feature
from chatserver.warm.dynamo.http_transport import ITEM_OPERATIONS, HttpTransport
from chatserver.warm.dynamo.metering import Failure, Meter, request_consumed_capacity
from chatserver.warm.dynamo.tenancy import Tenancy
from chatserver.warm.encryption.encrypted_fields import EncryptedFields

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb import DynamoDBClient

ATTEMPTS_MAX = 5  # maximum attempts per call, except after `Throttled` and `Contended`

T = TypeVar("T")
Action = dict[str, dict[str, Any]]  # one action of a transaction: {"Put": {"TableName": …, …}}
Item = dict[str, dict[str, Any]]  # DynamoDB attribute values: {"name": {"S": "alice"}}

RETRY_WAIT_S = 0.1  # upper limit of the random pause after the first attempt; then doubles
RETRY_WAIT_S_MAX = 1.0

_THROTTLED = {
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
}
_TEMPORARY = {
    "ExpiredTokenException",
    "InternalServerError",
    "RequestTimeout",
    "ServiceUnavailable",
}
_CONTENDED = {"TransactionConflictException", "TransactionInProgressException"}
_REJECTED_CREDENTIALS = {
    "AccessDeniedException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
}
# Transaction cancellation reasons: a concurrent writer, or throttling.
_CONTENDED_REASONS = {"TransactionConflict"}
_THROTTLED_REASONS = {
    "ProvisionedThroughputExceeded",
    "RequestLimitExceeded",
    "ThrottlingError",
}


class Throttled(Unavailable):
    """A table, one of its partitions or the account exceeded its capacity limit."""

    public = DYNAMODB_DOWN


class Contended(Unavailable):
    """A transaction on the same item was in progress."""

    public = DYNAMODB_DOWN


class TableMissing(ConfigError):
    """A table does not exist."""

    public = "a DynamoDB table is missing; run `chatserver tables apply`"


class ConditionFailed(Conflict):
    """The condition of a write failed.

    `stored` has one entry per action in the request: the existing item if the request asked
    for it with ``ReturnValuesOnConditionCheckFailure``, else None.
    """

    def __init__(self, message: str, stored: list[Item | None]) -> None:
        super().__init__(message)
        self.stored = stored


class IteratorExpired(Conflict):
    """A shard iterator is older than 15 minutes. Request a new one."""


class StreamTrimmed(CorruptData):
    """The requested Stream records were trimmed: DynamoDB keeps records for 24 hours."""


class DynamoClient:
    """DynamoDB client. A call returns the response or raises a `ChatError`."""

    def __init__(
        self, sdk: DynamoDBClient, settings: Warm, http: HttpTransport | None = None
    ) -> None:
        self._sdk = sdk
        self._http = http
        self.settings = settings
        self._tenancy = Tenancy(settings) if settings.tenant else None
        self.fence = WriteFence()  # shared by all copies of this client
        self._encryption: EncryptedFields | None = None
        self.feature: Feature = "other"
        self.meter = Meter(settings)
        self.endpoint: str = sdk.meta.endpoint_url

    def for_feature(self, feature: Feature) -> Self:
        """Return a copy of this client whose calls are metered under `feature`."""
        client = copy.copy(self)
        client.feature = feature
        return client

    def with_cipher(self, cipher: ValueCipher | None) -> Self:
        """Return a copy of this client that encrypts with `cipher`, or not at all if it is None."""
        client = copy.copy(self)
        client._encryption = EncryptedFields(cipher, self.settings) if cipher else None
        return client

    @property
    def cipher(self) -> ValueCipher | None:
        """The cipher with the tenant's data keys; None if encryption is off."""
        return None if self._encryption is None else self._encryption.cipher

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Call one operation by its SDK name (``"get_item"``), with retries.

        Guarantees:
            Bounded: `ATTEMPTS_MAX` attempts with jittered backoff, within `call_timeout_s` in
            total. Throttled and contended calls use all of that time.
            A write may run twice, and may have run if this raises `Unavailable`.
            Cancellation: safe; the connection in use is dropped.

        Raises:
            Unavailable: DynamoDB did not respond or returned a temporary error.
            ConditionFailed: a condition of the request failed.
            CorruptData: DynamoDB rejected the request as invalid.
            ConfigError: the table does not exist or access is denied.
        """
        return await self.retry(lambda: self.call_once(operation, request))

    async def transact(self, actions: Sequence[Action], token: str | None = None) -> None:
        """Run up to 100 write actions in a transaction. See `call` for guarantees and errors.

        For ten minutes, a repeated call with the same `token` has no effect.

        Raises:
            ConditionFailed: the condition of an action failed, and nothing was written.
        """
        request: dict[str, Any] = {"TransactItems": list(actions)}
        if token is not None:
            request["ClientRequestToken"] = token
        await self.call("transact_write_items", request)

    async def call_once(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Call one operation without retries. See `call` for errors."""
        sent = request
        # While the tenant is blocked, only feature `schema` can still call DynamoDB: it reads the
        # schema version item to learn when the block ends.
        if self.fence.reason and self.feature != "schema":
            raise Unavailable(self.fence.reason)
        if self._encryption is not None:
            sent = await self._encryption.encrypt_request(operation, sent)
        if self._tenancy is not None:
            sent = self._tenancy.prefix_request(operation, sent)
        sent = request_consumed_capacity(operation, sent)
        try:
            response: dict[str, Any]
            if self._http is not None and operation in ITEM_OPERATIONS:
                response = await self._http.call(operation, sent)
            else:
                response = await getattr(self._sdk, operation)(**sent)
        except (BotoCoreError, ClientError, aiohttp.ClientError, OSError) as exc:
            error = translate(exc, self.endpoint)
            self.meter.record_failure(self.feature, operation, _classify_error(error))
            if self._tenancy is not None and isinstance(error, ConditionFailed):
                error.stored = self._tenancy.strip_stored(operation, request, error.stored)
            if self._encryption is not None and isinstance(error, ConditionFailed):
                error.stored = await self._encryption.decrypt_stored(
                    operation, request, error.stored
                )
            raise error from exc
        if "RequestId" not in response["ResponseMetadata"]:
            # A proxy or another server may return 200: do not treat that as a completed write.
            raise Unavailable(
                f"DynamoDB at {self.endpoint}: this server is not DynamoDB", public=DYNAMODB_DOWN
            )
        if self._tenancy is not None:
            response = self._tenancy.strip_response(operation, request, response)
        self.meter.record(self.feature, operation, request, response)
        if self._encryption is not None:
            response = await self._encryption.decrypt_response(operation, request, response)
        return response

    async def decrypt(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Decrypt items that were not returned by `call`, such as items from a Stream.

        Raises:
            Unavailable: a data key is currently unavailable.
        """
        if self._encryption is None:
            return list(items)
        return await self._encryption.decrypt(table, items)

    async def retry(self, attempt: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Run `attempt`, and retry it while it raises `Unavailable`. This is the only retry layer.

        `Throttled` and `Contended` mean that DynamoDB works, so `attempt` is retried until the
        deadline. With other errors, it runs at most `ATTEMPTS_MAX` times.

        Raises:
            Unavailable: attempts or time are exhausted.
        """
        timeout_s = self.settings.call_timeout_s if timeout_s is None else timeout_s
        last: Unavailable | None = None
        try:
            async with asyncio.timeout(timeout_s):
                for number in itertools.count(1):
                    try:
                        return await attempt()
                    except (Throttled, Contended) as exc:
                        last = exc
                    except Unavailable as exc:
                        last = exc
                        if number >= ATTEMPTS_MAX:
                            raise
                    await asyncio.sleep(_backoff_s(number))
                    self.meter.record_retry(self.feature)
        except TimeoutError as exc:
            reason = f"; last error: {last.message}" if last else ""
            raise self._timeout_error(timeout_s, reason) from (last or exc)
        raise AssertionError("the retry loop ended without a result")

    @contextlib.asynccontextmanager
    async def deadline(self, timeout_s: float | None = None, what: str = "") -> AsyncIterator[None]:
        """Limit the total time of several calls; the default is `call_timeout_s`.

        Raises:
            Unavailable: the deadline passed.
        """
        timeout_s = self.settings.call_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as exc:
            raise self._timeout_error(timeout_s, f", waiting for {what}" if what else "") from exc

    def _timeout_error(self, timeout_s: float, reason: str) -> Unavailable:
        return Unavailable(
            f"DynamoDB at {self.endpoint}: timed out after {timeout_s:g} s{reason}",
            public=DYNAMODB_DOWN,
        )


def _backoff_s(attempt: int) -> float:
    """Return the pause after a failed attempt; the first attempt is 1.

    The whole pause is random, so callers that failed at the same time retry at different times.
    """
    longest_s = RETRY_WAIT_S * 2.0 ** min(attempt - 1, 10)
    return add_jitter(min(longest_s, RETRY_WAIT_S_MAX), 0)


_OF_STREAMS: dict[str, type[ChatError]] = {
    "ExpiredIteratorException": IteratorExpired,
    "TrimmedDataAccessException": StreamTrimmed,
}


def translate(exc: Exception, endpoint: str) -> ChatError:
    """Return the `ChatError` for an SDK exception."""
    server = f"DynamoDB at {endpoint}"
    if isinstance(exc, ClientError):
        return _translate_response(exc, server)
    return translate_no_response(exc, server, "warm", public=DYNAMODB_DOWN)


def _translate_response(exc: ClientError, server: str) -> ChatError:
    response: dict[str, Any] = {**exc.response}
    error = response.get("Error", {})
    code = error.get("Code", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{server}: {exc.operation_name}: {code}: {error.get('Message', '')}"
    if code in _THROTTLED:
        return Throttled(text)
    if code in _CONTENDED:
        return Contended(text)
    if code in _TEMPORARY or status >= 500:
        return Unavailable(text, public=DYNAMODB_DOWN)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(text, [response.get("Item")])
    if code == "TransactionCanceledException":
        return _translate_reasons(response.get("CancellationReasons") or [], server)
    if code == "ResourceInUseException":
        return Conflict(text)
    if code == "ResourceNotFoundException":
        return TableMissing(f"{text}; run `chatserver tables apply` to create the tables")
    if code in _REJECTED_CREDENTIALS:
        return ConfigError(text)
    return _OF_STREAMS.get(code, CorruptData)(text)


def _translate_reasons(reasons: list[dict[str, Any]], server: str) -> ChatError:
    codes = {str(reason.get("Code")) for reason in reasons}
    text = f"{server}: transaction cancelled: {', '.join(sorted(codes - {'None'}))}"
    if "ConditionalCheckFailed" in codes:
        return ConditionFailed(text, [reason.get("Item") for reason in reasons])
    if codes & _THROTTLED_REASONS:
        return Throttled(text)
    if codes & _CONTENDED_REASONS:
        return Contended(text)
    return CorruptData(text)


def _classify_error(error: ChatError) -> Failure:
    match error:
        case Throttled():
            return "throttled"
        case ConditionFailed():
            return "condition"
        case Unavailable():
            return "failed"
        case _:
            return "refused"
