"""Shared parts of the authorization matrices: a group and its callers.

Each row of a matrix gets its own group, so that rows do not affect each other. The owner creates it
with an admin and plain members: `member` and `second` send requests, `author` sends the messages
that requests refer to, `bystander` is the user that requests refer to. `muted` was muted after
sending a message; `removed` and `banned` are former members. `stranger` and `outsider` were never
members. All rows share the same users, except rows that change accounts.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import httpx

from tests.support.stack import NewName, Stack

MEMBERS = (
    "owner",
    "admin",
    "member",
    "second",
    "author",
    "bystander",
    "muted",
    "removed",
    "banned",
)
ROLES = (*MEMBERS, "stranger", "outsider")


class Kind(enum.Enum):
    """Groups of callers that a route allows; tables list the callers of each group."""

    OPEN = "all callers, with the same response"
    OWN = "logged-in users, for their own data"
    MEMBER = "members of the chat"
    MANAGER = "owner and admins of the chat"
    SENDER = "the sender of the message"
    APPLICATION = "the host application"


@dataclasses.dataclass(frozen=True)
class Row:
    """A request, and the responses of permitted callers. `{name}` in `fields` is replaced."""

    kind: Kind
    ok: Any
    fields: Mapping[str, Any] | None = None
    # Responses that differ from those of the kind.
    but: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    changes_accounts: bool = False


_registered: set[str] = set()  # owners of the user sets whose accounts exist in this run


async def make_world(stack: Stack, client: httpx.AsyncClient, row: Row, new_name: NewName) -> World:
    """Return the world of a row, with its accounts and group created."""
    world = World(stack, client, new_name("x") if row.changes_accounts else stack.secret[:8])
    await world.create()
    return world


class World:
    """The users, by role, and the group."""

    def __init__(self, stack: Stack, client: httpx.AsyncClient, stem: str) -> None:
        self._client = client
        self.users = {role: f"{role}-{stem}" for role in ROLES}
        self.chat = "no-chat"
        self.own_seq = 0  # the message of the muted member
        self.mid = "no-message"  # the newest message
        self._tokens = {role: stack.token(user) for role, user in self.users.items()}

    def headers(self, role: str) -> dict[str, str]:
        """Return the request headers of a user."""
        return {"Authorization": f"Bearer {self._tokens[role]}"}

    async def create(self) -> None:
        """Create the accounts that do not exist yet, and the group."""
        if self.users["owner"] not in _registered:
            for role in ROLES:
                await self._request("GET", "/v1/me", role)
            _registered.add(self.users["owner"])
        members = [self.users[role] for role in MEMBERS[1:]]
        self.chat = (await self._request("POST", "/v1/chats", "owner", {"members": members}))[
            "chat"
        ]
        path = f"/v1/chats/{self.chat}/members/{self.users['admin']}"
        await self._request("PATCH", path, "owner", {"role": "admin"})
        self.own_seq = await self.send("muted")
        members = f"/v1/chats/{self.chat}/members"
        await self._request("PUT", f"{members}/{self.users['muted']}/mute", "owner", {})
        await self._request("DELETE", f"{members}/{self.users['removed']}", "owner")
        await self._request("PUT", f"/v1/chats/{self.chat}/bans/{self.users['banned']}", "owner")

    async def send(self, role: str) -> int:
        """Send a message as a user; return its seq."""
        path = f"/v1/chats/{self.chat}/messages"
        placed = await self._request("POST", path, role, {"body": "hello"})
        self.mid = placed["mid"]
        seq: int = placed["seq"]
        return seq

    async def _request(self, method: str, path: str, role: str, json: Any = None) -> Any:
        answer = await self._client.request(method, path, headers=self.headers(role), json=json)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()

    def fill(self, value: Any, seq: int) -> Any:
        """Replace the placeholders of a value with the ids of this world."""
        if isinstance(value, str):
            names = {**self.users, "chat": self.chat}
            return seq if value == "{seq}" else value.format(**names)
        if isinstance(value, Mapping):
            return {name: self.fill(each, seq) for name, each in value.items()}
        if isinstance(value, list):
            return [self.fill(each, seq) for each in value]
        return value
