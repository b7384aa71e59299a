"""DynamoDB checks for process startup and for `chatserver doctor`."""

from __future__ import annotations

from typing import Any, Final

from chatserver.config import Warm
from chatserver.errors import ChatError, ConfigError
from chatserver.operations.doctor.model import DoctorFinding, make_finding
from chatserver.warm.dynamo.client import DynamoClient, TableMissing
from chatserver.warm.dynamo.connections import open_dynamodb
from chatserver.warm.schema.active_version import NEWEST, SchemaVersions
from chatserver.warm.schema.provisioning import find_problems
from chatserver.warm.schema.tables import TABLES, TableSchema

STORE: Final = "dynamodb"
APPLY: Final = "run `chatserver tables apply`"


async def require_tables(client: DynamoClient, settings: Warm) -> None:
    """Check that every table exists and can be read. Cost: half a read unit per table.

    Raises:
        ConfigError: credentials, a table or the permission to read it are missing.
        Unavailable: DynamoDB does not respond.
    """
    missing = []
    for table in TABLES:
        name = table.name_in(settings)
        key = {attribute: {table.get_type(attribute): "0"} for attribute in table.key.names}
        try:
            await client.call("get_item", {"TableName": name, "Key": key})
        except TableMissing:
            missing.append(f"table {name} is missing; {APPLY}")
    if missing:
        raise ConfigError(*missing)


async def check_dynamodb(settings: Warm) -> list[DoctorFinding]:
    """Return the findings about the tables. Changes nothing.

    Guarantees:
        DynamoDB problems are returned, never raised.
        Cost: one read and three free calls per table.
    """
    try:
        async with open_dynamodb(settings) as dynamodb:
            client = dynamodb.for_feature("operations")
            findings: list[DoctorFinding] = []
            for table in TABLES:
                findings += await _check_table(client, table, settings)
            if all(finding.level != "problem" for finding in findings):
                findings.append(await _check_schema(client, settings))
            return findings
    except ConfigError as exc:
        fix = "check warm.endpoint, warm.region and the credentials of the process"
        return [DoctorFinding(STORE, "problem", problem, fix) for problem in exc.problems]
    except ChatError as exc:
        fix = "check warm.endpoint (CHAT_WARM_ENDPOINT) and the network"
        return [DoctorFinding(STORE, "problem", exc.message, fix)]


async def _check_table(
    client: DynamoClient, table: TableSchema, settings: Warm
) -> list[DoctorFinding]:
    name = table.name_in(settings)
    try:
        response = await client.call("describe_table", {"TableName": name})
    except TableMissing:
        return [DoctorFinding(STORE, "problem", f"table {name} is missing", APPLY)]
    described: dict[str, Any] = response["Table"]
    problems = await find_problems(client, table, settings, described)
    findings = [
        DoctorFinding(STORE, "problem", problem, "see docs/evolution.md") for problem in problems
    ]
    making = [
        index["IndexName"]
        for index in described.get("GlobalSecondaryIndexes", [])
        if index["IndexStatus"] != "ACTIVE"
    ]
    if making:
        message = f"table {name}: {', '.join(making)} is being created"
        findings.append(
            DoctorFinding(
                STORE, "note", message, "wait; requests that need it are refused until then"
            )
        )
    if not findings:
        findings.append(
            DoctorFinding(STORE, "ok", f"table {name} has the expected keys and indexes")
        )
    if table.expiry is not None:
        findings.append(await _check_expiry(client, table, name))
    findings += await _check_backups(client, name)
    return findings


async def _check_expiry(client: DynamoClient, table: TableSchema, name: str) -> DoctorFinding:
    response = await client.call("describe_time_to_live", {"TableName": name})
    status = response["TimeToLiveDescription"]["TimeToLiveStatus"]
    message = f"table {name}: TTL deletes expired items"
    return make_finding(
        STORE, message, is_met=status in {"ENABLED", "ENABLING"}, fix=APPLY, level="note"
    )


async def _check_backups(client: DynamoClient, name: str) -> list[DoctorFinding]:
    try:
        response = await client.call("describe_continuous_backups", {"TableName": name})
    except ChatError:
        return []  # The call fails on a local server or without permission; do not report that.
    described = response["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return [
        make_finding(
            STORE,
            f"table {name}: point-in-time recovery is on",
            is_met=described.get("PointInTimeRecoveryStatus") == "ENABLED",
            fix="turn on point-in-time recovery",
            level="note",
        )
    ]


async def _check_schema(client: DynamoClient, settings: Warm) -> DoctorFinding:
    state = await SchemaVersions(client).get_state()
    message = f"the tables have schema {NEWEST}, the newest of this release"
    fix = f"they have {state.version}; run `chatserver migrate status`, then `migrate up`"
    is_new = state.version >= NEWEST
    return make_finding(STORE, message, is_met=is_new, fix=fix, level="note")
