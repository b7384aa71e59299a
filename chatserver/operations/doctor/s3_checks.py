"""S3 bucket checks for `chatserver doctor`."""

from __future__ import annotations

from typing import Final

from chatserver.cold.bucket import UPLOADS_PREFIX, find_missing_rules
from chatserver.cold.client import BucketMissing, ObjectMissing, ObjectStore, open_s3
from chatserver.config import Cold
from chatserver.domain.ids import new_id
from chatserver.errors import ChatError, ConfigError
from chatserver.operations.doctor.model import DoctorFinding, make_finding

STORE: Final = "s3"
APPLY: Final = "run `chatserver tables apply`"
_TEXT: Final = b"chatserver doctor"


async def check_s3(settings: Cold) -> list[DoctorFinding]:
    """Return the findings about the bucket.

    To check permissions reliably, a small object below ``uploads/`` is written, read and deleted.

    Guarantees:
        S3 problems are returned, never raised.
    """
    try:
        async with open_s3(settings) as store:
            return await _check_bucket(store, settings)
    except ConfigError as exc:
        fix = "check cold.endpoint, cold.bucket and the credentials of the process"
        return [DoctorFinding(STORE, "problem", problem, fix) for problem in exc.problems]
    except ChatError as exc:
        fix = "check cold.endpoint (CHAT_COLD_ENDPOINT), the bucket policy and the network"
        return [DoctorFinding(STORE, "problem", exc.message, fix)]


async def _check_bucket(store: ObjectStore, settings: Cold) -> list[DoctorFinding]:
    try:
        await store.call("head_bucket")
    except (BucketMissing, ObjectMissing):
        return [DoctorFinding(STORE, "problem", f"bucket {store.bucket} is missing", APPLY)]
    key = f"{UPLOADS_PREFIX}doctor-{new_id()}"
    await store.call("put_object", Key=key, Body=_TEXT)
    response = await store.call("get_object", Key=key)
    is_same = await response["Body"].read() == _TEXT
    await store.call("delete_object", Key=key)
    missing = await find_missing_rules(store, settings)
    versioning = await store.call("get_bucket_versioning")
    return [
        make_finding(STORE, f"bucket {store.bucket}: objects can be written, read and deleted",
              is_met=is_same, fix="it returned different bytes; check that the endpoint is S3"),
        make_finding(STORE, "unfinished uploads expire, and web clients may upload",
              is_met=not missing, fix=f"{', '.join(missing)}: {APPLY}", level="note"),
        make_finding(STORE, "versions of deleted objects are kept",
              is_met=versioning.get("Status") == "Enabled", level="note",
              fix="turn on versioning with a rule that expires old versions, or accept that "
              "deletion is final (docs/archive.md)"),
    ]  # fmt: skip
