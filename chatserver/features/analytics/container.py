"""Dependencies of analytics."""

from __future__ import annotations

from functools import cached_property

from chatserver.container.storage import StorageContainer
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.analytics.warm import ExportRows


class AnalyticsContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core

    @cached_property
    def state(self) -> ExportRows:
        core = self._core
        return ExportRows(core.dynamodb.for_feature("analytics"))

    @cached_property
    def files(self) -> ParquetFiles:
        return ParquetFiles(self._core.store)
