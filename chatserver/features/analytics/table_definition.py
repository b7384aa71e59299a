"""Table definitions for Athena and AWS Glue, generated from `model.COLUMNS`.

Both use partition projection: Athena computes the partitions from the table properties. So no
crawler is needed, and a new date can be queried as soon as its first file exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from chatserver.config import Cold
from chatserver.features.analytics.model import (
    COLUMNS,
    DEFAULT_TENANT,
    PARTITIONS,
    PREFIX,
    TABLE,
    Column,
)

FIRST_DATE: Final = "2020-01-01"  # first projected partition
_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_INPUT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"


def make_ddl(settings: Cold, tenants: Sequence[str], first_date: str = FIRST_DATE) -> str:
    """Return the CREATE TABLE statement for Athena."""
    lines = [f"CREATE EXTERNAL TABLE IF NOT EXISTS `{TABLE}` ("]
    lines += _format_columns(COLUMNS)
    lines += [")", "PARTITIONED BY ("]
    lines += _format_columns(PARTITIONS)
    lines += [")", "STORED AS PARQUET", f"LOCATION '{_build_location(settings, tenants)}'"]
    lines.append("TBLPROPERTIES (")
    properties = _build_properties(settings, tenants, first_date)
    lines += _with_commas([f"  '{name}' = '{value}'" for name, value in properties.items()])
    return "\n".join([*lines, ")"])


def make_glue_input(
    settings: Cold, tenants: Sequence[str], first_date: str = FIRST_DATE
) -> dict[str, Any]:
    """Return the `TableInput` for `aws glue create-table`."""
    return {
        "Name": TABLE,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "EXTERNAL": "TRUE",
            "classification": "parquet",
            **_build_properties(settings, tenants, first_date),
        },
        "PartitionKeys": [_build_glue_column(column) for column in PARTITIONS],
        "StorageDescriptor": {
            "Columns": [_build_glue_column(column) for column in COLUMNS],
            "Location": _build_location(settings, tenants),
            "InputFormat": _INPUT,
            "OutputFormat": _OUTPUT,
            "SerdeInfo": {
                "SerializationLibrary": _SERDE,
                "Parameters": {"serialization.format": "1"},
            },
        },
    }


def _format_columns(columns: Sequence[Column]) -> list[str]:
    return _with_commas(
        [f"  `{column.name}` {column.type} COMMENT '{_get_comment(column)}'" for column in columns]
    )


def _with_commas(lines: list[str]) -> list[str]:
    return [*(f"{line}," for line in lines[:-1]), lines[-1]]


def _build_glue_column(column: Column) -> dict[str, str]:
    return {"Name": column.name, "Type": column.type, "Comment": _get_comment(column)}


def _get_comment(column: Column) -> str:
    return column.meaning.replace("`", "")


def _build_location(settings: Cold, tenants: Sequence[str]) -> str:
    # Common prefix of the files. Athena finds the files by `storage.location.template`.
    own = f"{tenants[0]}/{PREFIX}" if len(tenants) == 1 else "" if tenants else PREFIX
    return f"s3://{settings.bucket}/{own}"


def _build_properties(settings: Cold, tenants: Sequence[str], first_date: str) -> dict[str, str]:
    own = "${tenant}/" if tenants else ""
    return {
        "projection.enabled": "true",
        "projection.date.type": "date",
        "projection.date.format": "yyyy-MM-dd",
        "projection.date.range": f"{first_date},NOW+1DAY",
        "projection.date.interval": "1",
        "projection.date.interval.unit": "DAYS",
        "projection.tenant.type": "enum",
        "projection.tenant.values": ",".join(tenants or [DEFAULT_TENANT]),
        "storage.location.template": (
            f"s3://{settings.bucket}/{own}{PREFIX}date=${{date}}/tenant=${{tenant}}/"
        ),
    }
