"""What the authorization matrices share: a small world of callers around one group.

Each row of a matrix gets a group of its own, so that no row sees what another one did: an owner
makes it of an admin and plain members: two who ask, an author of messages and a bystander to whom
things are done. One of them is muted, after he has said something, one was removed and one banned.
A stranger and an outsider are in none of it. The people are the same in all rows but those that do
something to accounts.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from tests.support.stack import Stack

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
PEOPLE = (*MEMBERS, "stranger", "outsider")


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
    """A request, and the responses of permitted callers. `{name}` in `fields` is filled in."""

    kind: Kind
    ok: Any
    fields: Mapping[str, Any] | None = None
    # Answers that differ from what the kind says.
    but: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_about_accounts: bool = False


_settled: set[str] = set()  # owners of those whose accounts were made in this run


async def make_world(
    stack: Stack, client: httpx.AsyncClient, row: Row, new_name: Callable[[str], str]
) -> World:
    """Return the world of a row, settled."""
    world = World(stack, client, new_name("x") if row.is_about_accounts else stack.secret[:8])
    await world.settle()
    return world


class World:
    """The people, by role, and the group."""

    def __init__(self, stack: Stack, client: httpx.AsyncClient, stem: str) -> None:
        self._client = client
        self.users = {role: f"{role}-{stem}" for role in PEOPLE}
        self.chat = "no-chat"
        self.own_seq = 0  # of what the muted member said before
        self.mid = "no-message"  # of the newest one
        self._tokens = {role: stack.token(user) for role, user in self.users.items()}

    def headers(self, role: str) -> dict[str, str]:
        """Return what one of the people sends with a request."""
        return {"Authorization": f"Bearer {self._tokens[role]}"}

    async def settle(self) -> None:
        """Make the accounts, those that are not there yet, and the group."""
        if self.users["owner"] not in _settled:
            for role in PEOPLE:
                await self._ask("GET", "/v1/me", role)
            _settled.add(self.users["owner"])
        members = [self.users[role] for role in MEMBERS[1:]]
        self.chat = (await self._ask("POST", "/v1/chats", "owner", {"members": members}))["chat"]
        path = f"/v1/chats/{self.chat}/members/{self.users['admin']}"
        await self._ask("PATCH", path, "owner", {"role": "admin"})
        self.own_seq = await self.say("muted")
        members = f"/v1/chats/{self.chat}/members"
        await self._ask("PUT", f"{members}/{self.users['muted']}/mute", "owner", {})
        await self._ask("DELETE", f"{members}/{self.users['removed']}", "owner")
        await self._ask("PUT", f"/v1/chats/{self.chat}/bans/{self.users['banned']}", "owner")

    async def say(self, role: str) -> int:
        """Have somebody send a message; return its seq."""
        path = f"/v1/chats/{self.chat}/messages"
        placed = await self._ask("POST", path, role, {"body": "hello"})
        self.mid = placed["mid"]
        seq: int = placed["seq"]
        return seq

    async def _ask(self, method: str, path: str, role: str, json: Any = None) -> Any:
        answer = await self._client.request(method, path, headers=self.headers(role), json=json)
        assert answer.is_success, (method, path, answer.text)
        return answer.json()

    def fill(self, value: Any, seq: int) -> Any:
        """Return a value with the names of this world in it."""
        if isinstance(value, str):
            names = {**self.users, "chat": self.chat}
            return seq if value == "{seq}" else value.format(**names)
        if isinstance(value, Mapping):
            return {name: self.fill(each, seq) for name, each in value.items()}
        if isinstance(value, list):
            return [self.fill(each, seq) for each in value]
        return value
