"""Arguments, progress display and error handling shared by the `tenants` commands."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click

from chatserver.command_options import handle_errors
from chatserver.config import Settings
from chatserver.domain.access.tenants import parse_tenant
from chatserver.errors import BadRequest, Conflict, CorruptData, NotFound, TooLarge

if TYPE_CHECKING:
    from chatserver.operations.tenants.tenant_stores import OpenTenant

F = TypeVar("F", bound=Callable[..., Any])

UnitsMax = Annotated[
    int | None,
    click.IntRange(1),
    "--max-units",
    "Maximum DynamoDB capacity units per second; default: unlimited.",
]
HasRedis = Annotated[
    bool,
    "--redis/--no-redis",
    "Include the tenant's Redis (CHAT_REDIS_URL). Use --no-redis if it no longer exists.",
]


def tenant_argument(command: F) -> F:

    def parse(_: click.Context, __: click.Parameter, value: str) -> str:
        try:
            return parse_tenant(value)
        except BadRequest as exc:
            raise click.BadParameter(exc.message) from None

    return click.argument("tenant", callback=parse)(command)


class TenantProgress:
    """Prints the number of processed items, objects and keys to standard error."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._counts: dict[str, int] = {}
        self._stack = contextlib.ExitStack()
        self._report: Any = None

    def __enter__(self) -> TenantProgress:
        from chatserver.cli.progress import open_report
        from chatserver.domain.clock import SystemClock

        self._report = self._stack.enter_context(open_report(SystemClock(), is_stderr=True))
        self._report.begin(self._title, 0)
        return self

    def __exit__(self, *exc: object) -> None:
        self._report.end()
        self._stack.close()

    def __call__(self, store: str, count: int) -> None:
        """Add `count` to the total of `store`. With a count of 0, `store` is a message."""
        if count:
            self._counts[store] = self._counts.get(store, 0) + count
        message = "" if count or store in self._counts else store
        self._report.show(sum(self._counts.values()), format_progress(self._counts, message))


def format_progress(counts: Mapping[str, int], message: str) -> str:
    """Return the counts and the message as text; either may be empty."""
    counted = ", ".join(f"{name} {done:,}" for name, done in counts.items())
    return "; ".join(filter(None, (counted, message)))


handle_tenant_errors = handle_errors(
    BadRequest, Conflict, CorruptData, NotFound, TooLarge, is_resumable=True
)


@contextlib.asynccontextmanager
async def open_tenant_of(
    settings: Settings, tenant: str, max_units: int | None = None, *, has_redis: bool
) -> AsyncIterator[OpenTenant]:
    from chatserver.domain.clock import SystemClock
    from chatserver.features.registry import list_features, load
    from chatserver.operations.tenants.tenant_stores import open_tenant

    features = [load(path) for feature in list_features() for path in feature.tenant_stores]
    async with open_tenant(
        settings,
        tenant,
        clock=SystemClock(),
        open_features=features,
        units_per_s=max_units,
        has_redis=has_redis,
    ) as work:
        yield work
