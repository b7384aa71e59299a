"""Where companions and sessions meet the warm tier, for the API and for workers."""

from __future__ import annotations

import dataclasses

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.service.companions import Book, Companions
from chatserver.service.companionsessions import SessionOpener
from chatserver.warm.client import DynamoClient
from chatserver.warm.companion_sessions import CompanionSessions as SessionRows
from chatserver.warm.companions import CompanionRows
from chatserver.warm.directory import Directory


@dataclasses.dataclass(frozen=True, slots=True)
class Talks:
    """Companions, and the sessions that users have with them."""

    personas: CompanionRows
    rows: SessionRows
    companions: Companions
    book: Book
    opener: SessionOpener


def make_talks(client: DynamoClient, settings: Warm, directory: Directory, clock: Clock) -> Talks:
    """Put them together."""
    personas, rows = CompanionRows(client, settings), SessionRows(client, settings)
    book = Book(personas, rows, directory)
    opener = SessionOpener(book, personas, directory, clock)
    return Talks(personas, rows, Companions(personas, clock), book, opener)
