"""Clients of the server, for people and programs. A program begins with `ChatClient`."""

from __future__ import annotations

from chatserver.client import events
from chatserver.client.client import ChatClient
from chatserver.client.model import Bounds
from chatserver.client.store import MemoryStore, SqliteStore, Store

__all__ = ["Bounds", "ChatClient", "MemoryStore", "SqliteStore", "Store", "events"]
