"""Analytics: exports messages as Parquet files in S3, for SQL queries.

Start with `model.py`, which defines the columns and object keys. `worker/exporter.py` writes the
files, and rewrites them after changes and erasures. `warm.py` has the export state in DynamoDB.
`parquet.py` encodes files, `duckdb_query.py` runs SQL queries, and `table_definition.py` generates
table definitions for Athena and Glue. Requires the extra `analytics`.
"""

from chatserver.features.registry import BACKGROUND_NICE, Feature, Worker

FEATURE = Feature(
    name="analytics",
    workers={
        "analytics": Worker(
            "chatserver.features.analytics.worker.export_passes:run_analytics",
            "exports messages as Parquet files for SQL queries",
            nice=BACKGROUND_NICE,
            is_in_all=False,  # off by default: it stores a second copy of message data
            all_if="analytics.export",
            check="chatserver.features.analytics.package_check:check_extra",
        ),
    },
    commands={
        "analytics": (
            "chatserver.features.analytics.cli:analytics",
            "Export messages as Parquet files, and query them with SQL.",
        ),
    },
    ports={
        "rewrite_exported": "chatserver.features.analytics.worker.erasure:make_rewriter",
    },
)
