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
    """Use cases and session_rows of companions and of their sessions with users."""

    companion_rows: CompanionRows
    session_rows: SessionRows
    companions: Companions
    catalog: CompanionCatalog
    session_opener: SessionOpener


def build_companions(
    client: DynamoClient, settings: Warm, directory: Directory, clock: Clock
) -> CompanionRepositories:
    """Build the use cases of companions."""
    companion_rows, session_rows = CompanionRows(client, settings), SessionRows(client, settings)
    catalog = CompanionCatalog(companion_rows, session_rows, directory)
    session_opener = SessionOpener(
        catalog=catalog, companions=companion_rows, directory=directory, clock=clock
    )
    return CompanionRepositories(
        companion_rows, session_rows, Companions(companion_rows, clock), catalog, session_opener
    )
