"""Dependency wiring of companions and their sessions, for the API and for workers."""

from __future__ import annotations

import dataclasses

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.features.companions.service.companions import CompanionCatalog, Companions
from chatserver.features.companions.service.sessions import SessionOpener
from chatserver.features.companions.warm.companions import CompanionRows
from chatserver.features.companions.warm.sessions import SessionRows
from chatserver.warm.chats.directory import Directory
from chatserver.warm.dynamo.client import DynamoClient


@dataclasses.dataclass(frozen=True, slots=True)
class CompanionRepositories:
    """Use cases and rows of companions and of their sessions with users."""

    personas: CompanionRows
    rows: SessionRows
    companions: Companions
    book: CompanionCatalog
    opener: SessionOpener


def make_talks(
    client: DynamoClient, settings: Warm, directory: Directory, clock: Clock
) -> CompanionRepositories:
    """Build the use cases of companions."""
    personas, rows = CompanionRows(client, settings), SessionRows(client, settings)
    book = CompanionCatalog(personas, rows, directory)
    opener = SessionOpener(book, personas, directory, clock)
    return CompanionRepositories(personas, rows, Companions(personas, clock), book, opener)
