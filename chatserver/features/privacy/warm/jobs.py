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

from typing import Any, Final, cast

import msgspec

from chatserver.config import Warm
from chatserver.errors import Conflict, CorruptData, LostRace, NotFound, RateLimited
from chatserver.features.privacy.model import Job, Kind, ReceiptLine, State
from chatserver.features.privacy.tables import JobField as Field
from chatserver.features.social.warm.social_items import INFO
from chatserver.telemetry import metrics
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import find_number, find_text, get_number, get_text
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.schema.tables import DIRECTORY, SOCIAL, DirectoryField

WAITING_READ_MAX: Final = 100
DAY_S: Final = 86_400
# Lifetime of `export#` items; must be longer than that of an export.
EXPORT_POINTER_TTL_S: Final = 40 * DAY_S
EXPORT_PREFIX: Final = "export#"
_KEPT: Final = "jobs#kept"
_steps = msgspec.json.Decoder(tuple[ReceiptLine, ...])


def encode_job(job: Job) -> Item:
    item = _job_key(job.id)
    texts = {Field.KIND: job.kind, Field.USER: job.user, Field.STATE: job.state}
    numbers = {
        Field.CREATED: job.created_ms,
        Field.CHANGED: job.changed_ms,
        Field.PROGRESS: job.progress,
        Field.TRIES: job.tries,
        Field.HELD_UNTIL: job.until_ms,
    }
    item |= {name: {"S": text} for name, text in texts.items()}
    item |= {name: {"N": str(number)} for name, number in numbers.items()}
    item[Field.HOLDER] = {"S": job.holder or "-"}
    if job.steps:
        item[Field.STEPS] = {"S": msgspec.json.encode(job.steps).decode()}
    if job.why:
        item[Field.WHY] = {"S": job.why}
    if job.size:
        item[Field.SIZE] = {"N": str(job.size)}
    if job.expires_at is not None:
        item[Field.EXPIRES_AT] = {"N": str(job.expires_at)}
    return item


def decode_job(item: Item) -> Job:
    """Decode a job item. Raises CorruptData."""
    try:
        steps = _steps.decode(find_text(item, Field.STEPS) or "[]")
    except msgspec.MsgspecError as exc:
        raise CorruptData(f"table directory: {item.get(DirectoryField.PK)}: {exc}") from exc
    return Job(
        id=get_text(item, DirectoryField.PK).removeprefix("job#"),
        kind=cast(Kind, get_text(item, Field.KIND)),
        user=get_text(item, Field.USER),
        created_ms=get_number(item, Field.CREATED),
        changed_ms=get_number(item, Field.CHANGED),
        state=cast(State, get_text(item, Field.STATE)),
        progress=get_number(item, Field.PROGRESS),
        steps=steps,
        why=find_text(item, Field.WHY) or "",
        size=find_number(item, Field.SIZE) or 0,
        tries=get_number(item, Field.TRIES),
        holder=get_text(item, Field.HOLDER),
        until_ms=get_number(item, Field.HELD_UNTIL),
        expires_at=find_number(item, Field.EXPIRES_AT),
    )


class JobRows:
    """Reads and writes the job items."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)
        self._social = SOCIAL.name_in(settings)

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
        pointer = await self._find(user_key(job.user), f"exports#{job.user}")
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
        exports = row_key(user_key(job.user), f"exports#{job.user}")
        exports |= {
            Field.JOB: {"S": job.id},
            Field.DAY: {"N": str(day)},
            Field.EXPORTS: {"N": str(count + 1)},
        }
        put = self._put(exports)["Put"]
        put["ExpressionAttributeNames"] = {"#job": Field.JOB}
        put["ConditionExpression"] = "attribute_not_exists(#job)"
        if pointer is not None:
            put["ConditionExpression"] = "#job = :job"
            put["ExpressionAttributeValues"] = {":job": pointer[Field.JOB]}
        check = {
            "TableName": self._table,
            "Key": row_key(user_key(job.user), user_key(job.user)),
            "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#erased)",
            "ExpressionAttributeNames": {
                "#pk": DirectoryField.PK,
                "#erased": DirectoryField.ERASED,
            },
        }
        listed = row_key(user_key(job.user), EXPORT_PREFIX + job.id)
        listed[Field.EXPIRES_AT] = {"N": str(now + EXPORT_POINTER_TTL_S)}
        actions = [
            *self._build_create_actions(job),
            self._put(listed),
            {"Put": put},
            {"ConditionCheck": check},
        ]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
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
        now = str(job.created_ms)
        names = {
            "#pk": DirectoryField.PK,
            "#erased": DirectoryField.ERASED,
            "#receipt": DirectoryField.RECEIPT,
            "#banned": DirectoryField.BANNED,
            "#before": DirectoryField.BEFORE,
            "#created": DirectoryField.CREATED,
            "#name": DirectoryField.NAME,
            "#about": DirectoryField.ABOUT,
            "#restricted": DirectoryField.RESTRICTED,
        }
        update = {
            "TableName": self._table,
            "Key": row_key(user_key(job.user), user_key(job.user)),
            "UpdateExpression": (
                "SET #erased = :now, #banned = :now, #created = :now, #before = :before, "
                "#receipt = :receipt REMOVE #name, #about, #restricted"
            ),
            "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#erased)",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {
                ":now": {"N": now},
                ":before": {"N": str(job.created_ms // 1000)},
                ":receipt": {"S": job.id},
            },
        }
        info = {"TableName": self._social, "Key": row_key(user_key(job.user), INFO)}
        actions = [*self._build_create_actions(job), {"Update": update}, {"Delete": info}]
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed:
            row = await self._find(user_key(job.user), user_key(job.user))
            receipt = find_text(row, DirectoryField.RECEIPT) if row is not None else None
            if receipt is None:
                raise NotFound("user: does not exist") from None
            return receipt
        return job.id

    def _build_create_actions(self, job: Job) -> list[dict[str, Any]]:
        put = self._put(encode_job(job))
        put["Put"]["ConditionExpression"] = "attribute_not_exists(#pk)"
        put["Put"]["ExpressionAttributeNames"] = {"#pk": DirectoryField.PK}
        return [put, self._put(waiting_key(job))]

    # Reads

    async def find(self, id_: str) -> Job | None:
        """Return a job, or None. Strongly consistent."""
        item = await self._find(f"job#{id_}", f"job#{id_}")
        return None if item is None else decode_job(item)

    async def find_newest_export(self, user: str) -> Job | None:
        """Return a user's newest export job, or None. Strongly consistent."""
        pointer = await self._find(user_key(user), f"exports#{user}")
        return None if pointer is None else await self.find(get_text(pointer, Field.JOB))

    async def list_waiting(self, kind: Kind) -> list[str]:
        """Return the ids of up to `WAITING_READ_MAX` unfinished jobs, oldest first."""
        rows = await self._list(f"jobs#{kind}", "~")
        return [row[DirectoryField.SK]["S"].partition("#")[2] for row in rows]

    # Execution

    async def claim(self, id_: str, holder: str, now_ms: int, hold_ms: int) -> Job | None:
        """Lease a job; return None if another worker holds the lease or the job has finished."""
        request = self._build_update(
            id_,
            {Field.HOLDER: holder, Field.HELD_UNTIL: now_ms + hold_ms, Field.STATE: "running"},
            "#held_until <= :now AND #state IN (:waiting, :running)",
            fields={":now": {"N": str(now_ms)}, ":waiting": {"S": "waiting"}},
        )
        request["UpdateExpression"] += " ADD #tries :one"
        request["ExpressionAttributeNames"]["#tries"] = Field.TRIES
        request["ExpressionAttributeValues"] |= {
            ":one": {"N": "1"},
            ":running": {"S": "running"},
        }
        request["ReturnValues"] = "ALL_NEW"
        try:
            response = await self._client.call("update_item", request)
        except ConditionFailed:
            return None
        return decode_job(response["Attributes"])

    async def update(self, job: Job, **changes: Any) -> bool:
        """Update a job; return False if `job.holder` no longer holds the lease.

        `changes` may contain `until_ms`, `progress`, `steps`, `why` and `changed_ms`.
        """
        return await write_conditionally(
            self._client, "update_item", self._build_leased_update(job, changes)
        )

    async def finish(self, job: Job, **changes: Any) -> bool:
        """Update a job and remove it from the queue; return False if the lease has been lost.

        `changes` may contain the fields listed in `update`, and `state`, `size` and `expires_at`.
        """
        update = self._build_leased_update(job, {**changes, "until_ms": 0})
        actions = [
            {"Update": update},
            {"Delete": {"TableName": self._table, "Key": waiting_key(job)}},
        ]
        if changes.get("state") == "ready":
            actions.append(self._put(export_expiry_key(job.id, changes["expires_at"])))
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed:
            stored = await self.find(job.id)  # an earlier attempt may have finished the job
            return stored is not None and stored.state == changes.get("state")
        return True

    def _build_leased_update(self, job: Job, changes: dict[str, Any]) -> dict[str, Any]:
        names = {
            "until_ms": Field.HELD_UNTIL,
            "progress": Field.PROGRESS,
            "steps": Field.STEPS,
            "why": Field.WHY,
            "changed_ms": Field.CHANGED,
            "state": Field.STATE,
            "size": Field.SIZE,
            "expires_at": Field.EXPIRES_AT,
        }
        values = {names[name]: value for name, value in changes.items()}
        if Field.STEPS in values:
            values[Field.STEPS] = msgspec.json.encode(values[Field.STEPS]).decode()
        return self._build_update(
            job.id,
            values,
            "#holder = :holder AND #state = :running",
            fields={":holder": {"S": job.holder}, ":running": {"S": "running"}},
        )

    def _build_update(
        self, id_: str, values: dict[str, str | int], condition: str, fields: Item
    ) -> dict[str, Any]:
        sets = ", ".join(f"#{name} = :new_{name}" for name in values)
        names = {*values, Field.HOLDER, Field.STATE, Field.HELD_UNTIL}
        return {
            "TableName": self._table,
            "Key": _job_key(id_),
            "UpdateExpression": f"SET {sets}",
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {
                f"#{name}": name for name in names if f"#{name}" in f"{sets} {condition}"
            },
            "ExpressionAttributeValues": {
                **{
                    f":new_{name}": {"N": str(value)} if isinstance(value, int) else {"S": value}
                    for name, value in values.items()
                },
                **fields,
            },
        }

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
            await self._delete(export_expiry_key(id_, expires_at))
        await self._delete(_job_key(id_))

    async def delete_waiting(self, job: Job) -> None:
        """Remove a job from the queue. Idempotent."""
        await self._delete(waiting_key(job))

    # Helpers

    async def _delete(self, key: Item) -> None:
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    def _put(self, item: Item) -> dict[str, Any]:
        return {"Put": {"TableName": self._table, "Item": item}}

    async def _find(self, partition: str, sort: str) -> Item | None:
        key = row_key(partition, sort)
        return await find_item(self._client, self._table, key)

    async def _list(self, partition: str, below: str) -> list[Item]:
        request = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk AND #sk < :below",
            "ExpressionAttributeNames": {"#pk": DirectoryField.PK, "#sk": DirectoryField.SK},
            "ExpressionAttributeValues": {":pk": {"S": partition}, ":below": {"S": below}},
            "ConsistentRead": True,
            "Limit": WAITING_READ_MAX,
        }
        rows: list[Item] = (await self._client.call("query", request))["Items"]
        return rows


def _job_key(id_: str) -> Item:
    return row_key(f"job#{id_}", f"job#{id_}")


def waiting_key(job: Job) -> Item:
    return row_key(f"jobs#{job.kind}", f"{job.created_ms:020d}#{job.id}")


def export_expiry_key(id_: str, expires_at: int) -> Item:
    return row_key(_KEPT, f"{expires_at:012d}#{id_}")
