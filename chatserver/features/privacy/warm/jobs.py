"""DynamoDB items of export and erasure jobs.

Owns these items in the `directory` table:

| item         | `PK`          | `SK`               | attributes                                |
|--------------|---------------|--------------------|-------------------------------------------|
| job          | `job#<id>`    | `job#<id>`         | `kind user state created changed progress |
|              |               |                    | steps? why? size? tries holder held_until |
|              |               |                    | expires_at?`                              |
| waiting job  | `jobs#<kind>` | `<created>#<id>`   | none: exists until the job is finished    |
| expiry       | `jobs#kept`   | `<expires>#<id>`   | none: the ZIP is deleted at `expires`     |
| newest       | `u#<user>`    | `exports#<user>`   | `job day exports` (the count on `day`)    |
| export       |               |                    |                                           |
| export of a  | `u#<user>`    | `export#<id>`      | `expires_at`                              |
| user         |               |                    |                                           |

A worker leases a job until `held_until` (by the worker's own clock) and renews the lease before it
expires. A write to the job succeeds only if its writer is the current holder. So if two workers
process the same job, only the one that leased it last can write.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from chatserver.errors import Conflict, LostRace, NotFound, RateLimited
from chatserver.features.privacy.model import Job, Kind, ReceiptLine
from chatserver.features.privacy.tables import JobField as Field
from chatserver.features.social.warm.social_items import INFO_ITEM
from chatserver.telemetry import metrics
from chatserver.warm.chats.directory_items import user_key
from chatserver.warm.chats.logins import IS_ACTIVE
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Add, Attr, Attributes, Changes, Condition
from chatserver.warm.dynamo.item_attributes import find_text, get_number, get_text
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Key, Table, try_write
from chatserver.warm.schema.tables import DIRECTORY, SOCIAL, DirectoryField

WAITING_READ_MAX: Final = 100
DAY_S: Final = 86_400
# Lifetime of `export#` items; must be longer than that of an export.
EXPORT_POINTER_TTL_S: Final = 40 * DAY_S
EXPORT_PREFIX: Final = "export#"
_KEPT: Final = "jobs#kept"
_steps = msgspec.json.Decoder(tuple[ReceiptLine, ...])


JOB: Final = Codec(
    Job,
    "job#{id}",
    "job#{id}",
    kind=Field.KIND,
    user=Field.USER,
    state=Field.STATE,
    created_ms=Field.CREATED,
    changed_ms=Field.CHANGED,
    progress=Field.PROGRESS,
    tries=Field.TRIES,
    until_ms=Field.HELD_UNTIL,
    holder=StoredField(Field.HOLDER, dump=lambda holder: holder or "-"),
    steps=StoredField(
        Field.STEPS,
        absent=(),
        load=lambda text: _steps.decode(text or "[]"),
        dump=lambda steps: msgspec.json.encode(steps).decode(),
    ),
    why=StoredField(Field.WHY, absent=""),
    size=StoredField(Field.SIZE, absent=0),
    expires_at=Field.EXPIRES_AT,
)
# Attributes of the fields that an update may change.
_CHANGEABLE: Final = {
    "until_ms": Field.HELD_UNTIL,
    "progress": Field.PROGRESS,
    "steps": Field.STEPS,
    "why": Field.WHY,
    "changed_ms": Field.CHANGED,
    "state": Field.STATE,
    "size": Field.SIZE,
    "expires_at": Field.EXPIRES_AT,
}


class JobRows:
    """Reads and writes the job items."""

    def __init__(self, client: DynamoClient) -> None:
        self._client = client
        self._table = Table(client, DIRECTORY)
        self._social = Table(client, SOCIAL)

    # Requests

    async def create_export(self, job: Job, per_day_max: int) -> None:
        """Store an export job.

        Guarantees:
            Atomic. A user has at most one unfinished export, and starts at most `per_day_max`
            exports per day.

        Raises:
            Conflict: an export is already in progress.
            RateLimited: the user has reached the daily limit.
            LostRace: a concurrent request has started an export; or the user does not exist or has
                been erased.
        """
        pointer = await self._table.find(_exports_row(job.user))
        day, count, now = job.created_ms // (DAY_S * 1000), 0, job.created_ms // 1000
        if pointer is not None:
            last = await self.find(get_text(pointer, Field.JOB))
            if last is not None and not last.is_finished:
                raise Conflict("export: another export is already running")
            if get_number(pointer, Field.DAY) == day:
                count = get_number(pointer, Field.EXPORTS)
        if count >= per_day_max:
            wait_ms = ((day + 1) * DAY_S - now) * 1000
            metrics.RATE_LIMITED.labels("exports").inc()
            raise RateLimited(
                "export: the daily limit is reached; try again tomorrow", retry_after_ms=wait_ms
            )
        exports: Attributes = {Field.JOB: job.id, Field.DAY: day, Field.EXPORTS: count + 1}
        last_job = None if pointer is None else get_text(pointer, Field.JOB)
        is_unchanged = Attr(Field.JOB).matches(last_job)
        actions = [
            *self._build_create_actions(job),
            self._table.put_action(
                (user_key(job.user), EXPORT_PREFIX + job.id),
                {Field.EXPIRES_AT: now + EXPORT_POINTER_TTL_S},
            ),
            self._table.put_action(_exports_row(job.user), exports, if_=is_unchanged),
            self._table.check_action((user_key(job.user), user_key(job.user)), if_=IS_ACTIVE),
        ]
        try:
            await self._client.transact(actions)
        except ConditionFailed:
            existing = await self.find(job.id)  # an earlier attempt may have stored the job
            if existing is None:
                raise LostRace("export: changed by a concurrent request; try again") from None

    async def create_erasure(self, job: Job) -> str:
        """Store an erasure job and replace the user's item with a tombstone; return the job id.

        If the item is already a tombstone, return the id of the existing job.

        Guarantees:
            Atomic. On return, nobody can log in or register as this user.

        Raises:
            NotFound: the user does not exist.
        """
        user_row = user_key(job.user), user_key(job.user)
        changes: Changes = {
            DirectoryField.ERASED: job.created_ms,
            DirectoryField.BANNED: job.created_ms,
            DirectoryField.CREATED: job.created_ms,
            DirectoryField.BEFORE: job.created_ms // 1000,
            DirectoryField.RECEIPT: job.id,
            DirectoryField.NAME: None,
            DirectoryField.ABOUT: None,
            DirectoryField.RESTRICTED: None,
        }
        actions = [
            *self._build_create_actions(job),
            self._table.update_action(user_row, changes, if_=IS_ACTIVE),
            self._social.delete_action(INFO_ITEM.key(user=job.user)),
        ]
        try:
            await self._client.transact(actions)
        except ConditionFailed:
            row = await self._table.find(user_row)
            receipt = find_text(row, DirectoryField.RECEIPT) if row is not None else None
            if receipt is None:
                raise NotFound("user: does not exist") from None
            return receipt
        return job.id

    def _build_create_actions(self, job: Job) -> list[Action]:
        return [
            self._table.put_action(JOB.encode(job), if_=Attr(DirectoryField.PK).is_absent),
            self._table.put_action(waiting_key(job)),
        ]

    # Reads

    async def find(self, id_: str) -> Job | None:
        """Return a job, or None. Strongly consistent."""
        item = await self._table.find(JOB.key(id=id_))
        return None if item is None else JOB.decode(item)

    async def find_newest_export(self, user: str) -> Job | None:
        """Return a user's newest export job, or None. Strongly consistent."""
        pointer = await self._table.find(_exports_row(user))
        return None if pointer is None else await self.find(get_text(pointer, Field.JOB))

    async def list_waiting(self, kind: Kind) -> list[str]:
        """Return the ids of up to `WAITING_READ_MAX` unfinished jobs, oldest first."""
        rows = await self._list(f"jobs#{kind}", "~")
        return [row[DirectoryField.SK]["S"].partition("#")[2] for row in rows]

    # Execution

    async def claim(self, id_: str, holder: str, now_ms: int, hold_ms: int) -> Job | None:
        """Lease a job; return None if another worker holds the lease or the job has finished."""
        is_free = (Attr(Field.HELD_UNTIL) <= now_ms) & Attr(Field.STATE).is_in(
            ("waiting", "running")
        )
        changes: Changes = {
            Field.HOLDER: holder,
            Field.HELD_UNTIL: now_ms + hold_ms,
            Field.STATE: "running",
            Field.TRIES: Add(1),
        }
        try:
            item = await self._table.update(JOB.key(id=id_), changes, "new", if_=is_free)
        except ConditionFailed:
            return None
        return JOB.decode(item)

    async def update(self, job: Job, **changes: Any) -> bool:
        """Update a job; return False if `job.holder` no longer holds the lease.

        `changes` may contain `until_ms`, `progress`, `steps`, `why` and `changed_ms`.
        """
        key, values, is_leased = _build_leased_update(job, changes)
        return await try_write(self._table.update(key, values, if_=is_leased))

    async def finish(self, job: Job, **changes: Any) -> bool:
        """Update a job and remove it from the queue; return False if the lease has been lost.

        `changes` may contain the fields listed in `update`, and `state`, `size` and `expires_at`.
        """
        key, values, is_leased = _build_leased_update(job, {**changes, "until_ms": 0})
        actions = [
            self._table.update_action(key, values, if_=is_leased),
            self._table.delete_action(waiting_key(job)),
        ]
        if changes.get("state") == "ready":
            expiry = export_expiry_key(job.id, changes["expires_at"])
            actions.append(self._table.put_action(expiry))
        try:
            await self._client.transact(actions)
        except ConditionFailed:
            stored = await self.find(job.id)  # an earlier attempt may have finished the job
            return stored is not None and stored.state == changes.get("state")
        return True

    # Expired exports

    async def list_expiring_before(self, before: int) -> list[tuple[str, int]]:
        """Return job id and `expires_at` of exports that expire before `before` (s since 1970)."""
        expiring = []
        for row in await self._list(_KEPT, f"{before:012d}"):
            due, _, id_ = row[DirectoryField.SK]["S"].partition("#")
            expiring.append((id_, int(due)))
        return expiring

    async def delete(self, id_: str, expires_at: int | None) -> None:
        """Delete a job and its expiry item. Idempotent."""
        if expires_at is not None:
            await self._table.delete(export_expiry_key(id_, expires_at))
        await self._table.delete(JOB.key(id=id_))

    async def delete_waiting(self, job: Job) -> None:
        """Remove a job from the queue. Idempotent."""
        await self._table.delete(waiting_key(job))

    async def _list(self, partition: str, below: str) -> list[Item]:
        span = Span(DIRECTORY, partition, before=below)
        return await self._table.query(span, limit=WAITING_READ_MAX)


def _build_leased_update(job: Job, changes: dict[str, Any]) -> tuple[Key, Changes, Condition]:
    """Return the key, the changes and the condition of an update by the holder of the lease."""
    values = {_CHANGEABLE[name]: value for name, value in changes.items()}
    if Field.STEPS in values:
        values[Field.STEPS] = msgspec.json.encode(values[Field.STEPS]).decode()
    is_leased = (Attr(Field.HOLDER) == job.holder) & (Attr(Field.STATE) == "running")
    return JOB.key(id=job.id), values, is_leased


def _exports_row(user: str) -> tuple[str, str]:
    return user_key(user), f"exports#{user}"


def waiting_key(job: Job) -> tuple[str, str]:
    return f"jobs#{job.kind}", f"{job.created_ms:020d}#{job.id}"


def export_expiry_key(id_: str, expires_at: int) -> tuple[str, str]:
    return _KEPT, f"{expires_at:012d}#{id_}"
