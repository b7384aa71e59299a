"""Opens the configured engine."""

from __future__ import annotations

import importlib
from pathlib import Path

from chatserver import extras
from chatserver.config import Settings
from chatserver.features.search.engines.sqlite_fts import SqliteEngine
from chatserver.features.search.model import Engine
from chatserver.features.search.settings import Search

IN_BUCKET = "s3"
PARTITIONS_MAX = 8
DEFAULT_TENANT = "default"  # folder name if there are no tenants


def is_enabled(settings: Settings) -> bool:
    return bool(settings.get(Search).index)


def is_in_bucket(settings: Settings) -> bool:
    """Return whether the index is in the S3 bucket rather than in a folder."""
    return settings.get(Search).index == IN_BUCKET


def count_partitions(settings: Settings, redis_partitions: int) -> int:
    """Return the number of index partitions, each with its own writer."""
    return min(PARTITIONS_MAX, redis_partitions) if is_in_bucket(settings) else 1


def check_engine(settings: Settings) -> None:
    """Check that the engine is installed. Raises ConfigError."""
    if is_in_bucket(settings):
        extras.require_extras("search", "search")


def load_engine(settings: Settings) -> None:
    """Import the engine's library, which takes seconds. Do nothing if it is not installed."""
    if is_in_bucket(settings) and extras.is_installed("search"):
        importlib.import_module("chatserver.features.search.engines.lance")


def open_engine(settings: Settings, number: int, *, is_writer: bool) -> Engine:
    """Return the engine of an index partition."""
    if is_in_bucket(settings):
        check_engine(settings)
        from chatserver.features.search.engines.lance import LanceEngine

        return LanceEngine(settings.cold, number)
    return SqliteEngine(get_index_file(settings, number), is_writer=is_writer)


def get_index_folder(settings: Settings, tenant: str) -> Path:
    """Return the folder that holds a tenant's index."""
    return Path(settings.get(Search).index) / (tenant or DEFAULT_TENANT)


def get_index_file(settings: Settings, number: int) -> Path:
    """Return the file that holds an index partition."""
    return get_index_folder(settings, settings.warm.tenant) / f"messages-{number}.sqlite"
