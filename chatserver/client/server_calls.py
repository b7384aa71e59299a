"""Requests of the command mixins: frames on the connection, and calls of the HTTP API."""

from __future__ import annotations

import abc
import secrets

from chatserver.client.chat import Chat
from chatserver.client.client_state import ANSWER_S, ClientState
from chatserver.client.http.http_api import HttpApi
from chatserver.client.request_queue import Fields
from chatserver.errors import BadRequest


def new_ref() -> str:
    """Return a unique reference (idempotency key) for an operation."""
    return secrets.token_hex(12)


def build_fields(type_: str, **fields: object) -> Fields:
    """Return the fields of a frame, without those that are None."""
    return {"type": type_, **{name: value for name, value in fields.items() if value is not None}}


class ServerCalls(abc.ABC):
    """Base of the command mixins. `ChatClient` sends the requests and receives the responses."""

    _state: ClientState
    _api: HttpApi | None

    @abc.abstractmethod
    async def _request(self, fields: Fields, deadline_s: float) -> Fields:
        """Send a request and return its response."""

    async def _call(self, type_: str, **fields: object) -> Fields:
        """Send a request of this type, without the fields that are None."""
        return await self._request(build_fields(type_, **fields), ANSWER_S)

    async def _request_chat(self, type_: str, **fields: object) -> Chat:
        """Send a request and return the chat in its response, or else the chat it names."""
        response = await self._call(type_, **fields)
        info = response.get("chat") or {"chat": fields["chat"]}
        self._state.apply_info(info)
        return self._state.chats[info["chat"]]

    async def _change_group(self, type_: str, chat: str, ref: str | None, **fields: object) -> Chat:
        """Change a group and return its new state."""
        return await self._request_chat(type_, chat=chat, ref=ref or new_ref(), **fields)

    def _get_http_api(self) -> HttpApi:
        """Return the HTTP API client. Raises BadRequest if there is none."""
        if self._api is None:
            raise BadRequest("api_url: required; set it to the address of the HTTP API")
        return self._api
