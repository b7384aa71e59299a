"""A client generated from the OpenAPI document sends, repeats and deletes messages.

Usage: ``journey.py API_URL FOLDER``, with the generated package `client` in the folder.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

API, FOLDER = sys.argv[1:]
sys.path.insert(0, FOLDER)

package: Any = importlib.import_module("client")
models: Any = importlib.import_module("client.models")


def call(tag: str, operation: str, client: Any, *path: Any, **more: Any) -> tuple[int, Any]:
    """Call an operation; return the status and the parsed body."""
    module = importlib.import_module(f"client.api.{tag}.{operation}")
    response = module.sync_detailed(*path, client=client, **more)
    return int(response.status_code), response.parsed


def register(user: str) -> Any:
    anonymous = package.Client(base_url=API, raise_on_unexpected_status=True)
    body = models.Registration(user=user, password=f"a long password of {user}")
    status, granted = call("auth", "register", anonymous, body=body)
    assert status == 201, (status, granted)
    return package.AuthenticatedClient(
        base_url=API, token=granted.token, raise_on_unexpected_status=True
    )


def main() -> None:
    """Exit with an error if a response is not as the document declares it."""
    alice, _ = register("py-alice"), register("py-bob")
    status, opened = call("direct_chats", "open_direct", alice, "py-bob")
    assert status == 200, opened
    chat = opened.chat

    message = models.NewMessage(body="hello", ref="r-1")
    status, sent = call("chats", "send", alice, chat, body=message)
    assert (status, sent.dup) == (201, False), sent
    status, repeated = call("chats", "send", alice, chat, body=message)
    assert (status, repeated.dup, repeated.seq) == (200, True, sent.seq), repeated
    status, refused = call("chats", "send", alice, chat, body=models.NewMessage("other", ref="r-1"))
    assert (status, refused.code) == (409, "conflict"), refused

    keyed = models.NewMessage(body="with a key")
    first, second = (
        call("chats", "send", alice, chat, body=keyed, idempotency_key="key-1") for _ in range(2)
    )
    assert (first[0], first[1].seq) == (second[0], second[1].seq) == (201, sent.seq + 1)

    edit = models.NewText(body="hello again")
    status, edited = call("chats", "edit", alice, chat, sent.seq, body=edit)
    assert status == 200, edited
    for dup in (False, True):
        status, deleted = call("chats", "delete_message", alice, chat, sent.seq)
        assert (status, deleted.dup) == (200, dup), deleted

    status, absent = call("chats", "get_chat", alice, "no-such-chat")
    assert (status, absent.code) == (404, "not_found"), absent
    anonymous = package.AuthenticatedClient(base_url=API, token="none")
    status, problem = call("me", "get_me", anonymous)
    assert (status, problem.code) == (401, "unauthenticated"), problem


main()
