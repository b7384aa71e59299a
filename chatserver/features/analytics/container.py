"""Dependencies of analytics."""

from __future__ import annotations

from chatserver.container.storage import StorageContainer
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.analytics.warm import ExportRows


class AnalyticsContainer:
    def __init__(self, core: StorageContainer) -> None:
        self.state = ExportRows(core.dynamodb.for_feature("analytics"))
        self.files = ParquetFiles(core.store)
