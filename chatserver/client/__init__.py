"""Python client SDK for users' devices, terminals and bots.

To read the code, start with `ChatClient` in `client.py`; `ClientState` in `client_state.py` has the
protocol logic without I/O. `terminal` is the `chatserver chat` command. In docstrings, "the user"
is the signed-in user.
"""

from __future__ import annotations

from chatserver.client import events
from chatserver.client.cache.sqlite_store import SqliteStore
from chatserver.client.client import ChatClient
from chatserver.client.http.account import Account
from chatserver.client.model import Bounds
from chatserver.client.state_store import MemoryStore, Store

__all__ = ["Account", "Bounds", "ChatClient", "MemoryStore", "SqliteStore", "Store", "events"]
