"""Authorization of every route for every kind of caller; a route without a row fails.

The rule in the OpenAPI document (`x-rule`) is not trusted: each caller's response is compared with
the row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from chatserver.auth.api_keys import SCOPES
from chatserver.dev.servers import Server
from tests.security.support.access_matrix import Kind, Row, World, make_world
from tests.security.support.users import make_key
from tests.support.declared_statuses import declared_statuses
from tests.support.stack import NewName, Stack

__all__ = ["declared_statuses"]  # a fixture

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
Keys = dict[str, str]

OPEN, OWN, MEMBER, MANAGER = Kind.OPEN, Kind.OWN, Kind.MEMBER, Kind.MANAGER
SENDER, APPLICATION = Kind.SENDER, Kind.APPLICATION
WRONG_LOGIN = {"user": "{stranger}", "password": "a wrong password"}
UPLOAD = {"name": "a.txt", "size": 1, "type": "text/plain", "sha256": "0" * 64}
PICTURE = {**UPLOAD, "name": "a.png", "type": "image/png"}
MUTED = {"muted": 403}
# Invalid, so that no row creates a companion.
PERSONA = {
    "name": "Ada",
    "provider": "scripted",
    "model": "echo",
    "context_tokens_max": 300,
    "answer_tokens_max": 300,
}
PUSH = {"token": "a-token-of-an-application-of-nobody"}

ROWS: dict[str, Row] = {
    "GET /healthz": Row(OPEN, 200),
    "GET /readyz": Row(OPEN, 200),
    "GET /v1/client-config": Row(OPEN, 200),
    "POST /v1/auth/login": Row(OPEN, 401, WRONG_LOGIN),
    "POST /v1/auth/logout": Row(OPEN, 204, {"refresh_token": "none"}),
    "POST /v1/auth/refresh": Row(OPEN, 401, {"refresh_token": "none"}),
    "POST /v1/auth/register": Row(OPEN, 400, {"user": "{stranger}", "password": "short"}),
    "POST /v1/auth/logout-everywhere": Row(OWN, 204, changes_accounts=True),
    "GET /v1/me": Row(OWN, 200),
    "GET /v1/me/sent": Row(OWN, 200),
    "GET /v1/me/messages": Row(OWN, 200),
    "GET /v1/me/received": Row(OWN, 200),
    "PATCH /v1/me": Row(OWN, 200, {"name": "Me"}),
    "DELETE /v1/me": Row(OWN, 202, {}, changes_accounts=True),
    "POST /v1/me/export": Row(OWN, 202, changes_accounts=True),
    "GET /v1/me/export": Row(OWN, 404, changes_accounts=True),
    "GET /v1/erasures/{receipt}": Row(OPEN, 404),
    "GET /v1/me/devices": Row(OWN, 200),
    "DELETE /v1/me/devices/{device}": Row(OWN, 404),
    "PUT /v1/me/password": Row(OWN, 404, {"current": "none", "password": "another password"}),
    "GET /v1/me/push-subscriptions": Row(OWN, 200),
    "POST /v1/me/push-subscriptions": Row(OWN, 201, PUSH),
    "DELETE /v1/me/push-subscriptions/{subscription}": Row(OWN, 404),
    "GET /v1/me/blocks": Row(OWN, 200),
    "PUT /v1/me/blocks/{user}": Row(OWN, 204, changes_accounts=True),
    "DELETE /v1/me/blocks/{user}": Row(OWN, 204),
    "GET /v1/users/{user}": Row(OWN, 200),
    "GET /v1/users/{user}/followers": Row(OWN, 200),
    "GET /v1/users/{user}/following": Row(OWN, 200),
    "GET /v1/users/{user}/posts": Row(OWN, 200),
    "GET /v1/users/{user}/posts/{post}": Row(OWN, 404),
    "GET /v1/users/{user}/posts/{post}/likes": Row(OWN, 404),
    "PUT /v1/users/{user}/posts/{post}/like": Row(OWN, 404),
    "DELETE /v1/users/{user}/posts/{post}/like": Row(OWN, 204),
    "GET /v1/users/{user}/posts/{post}/image": Row(OWN, 404),
    "GET /v1/users/{user}/avatar": Row(OWN, 404),
    # Only the owner may read a timeline, and no caller is the owner.
    "GET /v1/users/{user}/timeline": Row(OWN, 404),
    "PUT /v1/me/following/{user}": Row(OWN, 204, changes_accounts=True),
    "DELETE /v1/me/following/{user}": Row(OWN, 204),
    "GET /v1/me/favorites/posts": Row(OWN, 200),
    "PUT /v1/me/favorites/posts/{user}/{post}": Row(OWN, 404),
    "DELETE /v1/me/favorites/posts/{user}/{post}": Row(OWN, 204),
    "GET /v1/me/favorites/messages": Row(OWN, 200),
    "PUT /v1/me/favorites/messages/{chat}/{seq}": Row(MEMBER, 204),
    "DELETE /v1/me/favorites/messages/{chat}/{seq}": Row(OWN, 204),
    "POST /v1/me/posts": Row(OWN, 201, {"content": "hello"}),
    "PATCH /v1/me/posts/{post}": Row(OWN, 404, {"content": "hello"}),
    "DELETE /v1/me/posts/{post}": Row(OWN, 404),
    "PUT /v1/me/avatar": Row(OWN, 404, {"image": "absent"}),
    "DELETE /v1/me/avatar": Row(OWN, 204),
    "POST /v1/me/attachments": Row(OWN, 201, PICTURE),
    "GET /v1/me/attachments": Row(OWN, 200),
    "GET /v1/presence": Row(OWN, 200),
    "GET /v1/users": Row(OWN, 200),
    "GET /v1/chats": Row(OWN, 200),
    "POST /v1/chats": Row(OWN, 201, {"members": ["{outsider}"]}),
    "PUT /v1/direct-chats/{user}": Row(OWN, 200),
    "GET /v1/chats/{chat}": Row(MEMBER, 200),
    "PATCH /v1/chats/{chat}": Row(MANAGER, 200, {"name": "Renamed"}),
    "GET /v1/chats/{chat}/members": Row(MEMBER, 200),
    "POST /v1/chats/{chat}/members": Row(MANAGER, 201, {"users": ["{outsider}"]}),
    "PATCH /v1/chats/{chat}/members/{user}": Row(
        MANAGER, 200, {"role": "member"}, {"admin": 403, "owner": 200}
    ),
    "DELETE /v1/chats/{chat}/members/{user}": Row(MANAGER, 200),
    "PUT /v1/chats/{chat}/members/{user}/mute": Row(MANAGER, 200, {"mute_s": 60}),
    "GET /v1/chats/{chat}/bans": Row(MANAGER, 200),
    "PUT /v1/chats/{chat}/bans/{user}": Row(MANAGER, 200),
    "DELETE /v1/chats/{chat}/bans/{user}": Row(MANAGER, 200),
    "PUT /v1/chats/{chat}/messages/{seq}/report": Row(MEMBER, 204, {"reason": "spam"}),
    "GET /v1/chats/{chat}/reports": Row(MANAGER, 200),
    "POST /v1/chats/{chat}/reports/{seq}/{user}/resolve": Row(MANAGER, 404),
    "GET /v1/chats/{chat}/preview": Row(MEMBER, 200),  # the group is not open
    "POST /v1/chats/{chat}/join": Row(MEMBER, 200, {}),
    "GET /v1/invitations": Row(OWN, 200),
    "POST /v1/invitations/{chat}/accept": Row(MEMBER, 200, {}),
    "DELETE /v1/invitations/{chat}": Row(OWN, 204),
    "POST /v1/chats/{chat}/leave": Row(MEMBER, 200, {}),
    "PUT /v1/chats/{chat}/marks": Row(MEMBER, 204, {"read": 1}),
    "GET /v1/chats/{chat}/notifications": Row(MEMBER, 200),
    "PUT /v1/chats/{chat}/notifications": Row(MEMBER, 200, {"quiet": True}),
    "GET /v1/chats/{chat}/picture": Row(MEMBER, 404),  # the group has none
    "GET /v1/chats/{chat}/preferences": Row(MEMBER, 200),
    "PATCH /v1/chats/{chat}/preferences": Row(MEMBER, 200, {"archived": True}),
    "GET /v1/me/chat-preferences": Row(OWN, 200),
    "GET /v1/me/pinned-chats": Row(OWN, 200),
    "PUT /v1/me/pinned-chats": Row(OWN, 200, {"chats": ["{chat}"]}),
    "GET /v1/chats/{chat}/messages": Row(MEMBER, 200),
    "GET /v1/chats/{chat}/messages/between": Row(MEMBER, 200),
    "GET /v1/chats/{chat}/messages/active": Row(MEMBER, 200),
    "GET /v1/chats/{chat}/messages/with-files": Row(MEMBER, 200),
    "GET /v1/chats/{chat}/messages/{seq}": Row(MEMBER, 200),
    "GET /v1/chats/{chat}/messages/around/{seq}": Row(MEMBER, 200),
    "GET /v1/chats/{chat}/messages/by-mid/{mid}": Row(MEMBER, 200),
    "POST /v1/chats/{chat}/messages": Row(MEMBER, 201, {"body": "hello"}, MUTED),
    "PATCH /v1/chats/{chat}/messages/{seq}": Row(SENDER, 200, {"body": "better"}, MUTED),
    "DELETE /v1/chats/{chat}/messages/{seq}": Row(SENDER, 200, but={"admin": 200, "owner": 200}),
    "PUT /v1/chats/{chat}/messages/{seq}/reaction": Row(MEMBER, 200, {"emoji": "👍"}, MUTED),
    "GET /v1/chats/{chat}/pins": Row(MEMBER, 200),
    "PUT /v1/chats/{chat}/pins/{seq}": Row(MANAGER, 204),
    "DELETE /v1/chats/{chat}/pins/{seq}": Row(MANAGER, 204),
    "GET /v1/link-preview": Row(OWN, 404),  # a private address
    "GET /v1/link-preview/picture": Row(OWN, 404),
    "GET /v1/search": Row(OWN, 404),  # there is no index here
    "GET /v1/user-search": Row(OWN, 200),
    "POST /v1/chats/{chat}/attachments": Row(MEMBER, 201, UPLOAD),
    "POST /v1/attachments/{file}/complete": Row(OWN, 404),
    "GET /v1/attachments/{file}": Row(OWN, 404),
    "GET /v1/attachments/{file}/link": Row(OWN, 404),
    "GET /v1/companions": Row(OWN, 200),
    "POST /v1/companions": Row(APPLICATION, 400, PERSONA),
    "GET /v1/companions/{companion}": Row(OWN, 404),
    "PATCH /v1/companions/{companion}": Row(APPLICATION, 404, {"name": "Ada"}),
    "DELETE /v1/companions/{companion}": Row(APPLICATION, 404),
    "GET /v1/companions/{companion}/versions/{version}": Row(APPLICATION, 404),
    "GET /v1/companions/{companion}/session": Row(OWN, 404),
    "POST /v1/companions/{companion}/session": Row(OWN, 404, {}),
    "DELETE /v1/companions/{companion}/session": Row(OWN, 404),
    "POST /v1/companions/{companion}/session/renewal": Row(OWN, 404, {}),
    "GET /v1/companion-sessions": Row(OWN, 200),
    "GET /v1/me/companions/{companion}/memory": Row(OWN, 200),
    "PATCH /v1/me/companions/{companion}/memory": Row(OWN, 404, {"enabled": True}),
    "DELETE /v1/me/companions/{companion}/memory": Row(OWN, 404),
    "DELETE /v1/me/companions/{companion}/memory/{entry}": Row(OWN, 404),
    "PUT /v1/companion-sessions/{chat}/version": Row(OWN, 404, {}),
    "POST /v1/admin/broadcasts": Row(APPLICATION, 202, {"users": ["{outsider}"], "body": "x"}),
    "GET /v1/admin/broadcasts/{broadcast}": Row(APPLICATION, 404),
    "POST /v1/admin/chats": Row(APPLICATION, 201, {"members": ["{outsider}"]}),
    "GET /v1/admin/chats/{chat}/messages": Row(APPLICATION, 200),
    "GET /v1/admin/chats/{chat}/messages/active": Row(APPLICATION, 200),
    "POST /v1/admin/chats/{chat}/messages": Row(APPLICATION, 201, {"body": "x"}),
    "DELETE /v1/admin/chats/{chat}/messages/{seq}": Row(APPLICATION, 204),
    "PUT /v1/admin/chats/{chat}/retention": Row(APPLICATION, 200, {"retention_s": 3600}),
    "PUT /v1/admin/chats/{chat}/hold": Row(APPLICATION, 200, {"reason": "a case"}),
    "GET /v1/admin/chats/{chat}/hold": Row(APPLICATION, 404),
    "DELETE /v1/admin/chats/{chat}/hold": Row(APPLICATION, 204),
    "GET /v1/admin/chats/{chat}/held": Row(APPLICATION, 200),
    "GET /v1/admin/holds": Row(APPLICATION, 200),
    "GET /v1/admin/reports": Row(APPLICATION, 200),
    # Admins of the installation are allowed; owners and admins of chats are not such admins.
    "GET /v1/admin/overview": Row(APPLICATION, 200),
    "GET /v1/admin/audit": Row(APPLICATION, 200),
    "GET /v1/admin/cost": Row(APPLICATION, 200),
    "POST /v1/admin/users": Row(APPLICATION, 409, {"user": "{outsider}"}),
    "GET /v1/admin/users/{user}": Row(APPLICATION, 200),
    "DELETE /v1/admin/users/{user}": Row(APPLICATION, 202, changes_accounts=True),
    "PUT /v1/admin/users/{user}/ban": Row(APPLICATION, 204, changes_accounts=True),
    "DELETE /v1/admin/users/{user}/ban": Row(APPLICATION, 204),
    "PUT /v1/admin/users/{user}/password": Row(
        APPLICATION, 204, {"password": "long enough"}, changes_accounts=True
    ),
    "GET /v1/admin/users/{user}/sent": Row(APPLICATION, 200),
    "GET /v1/admin/users/{user}/messages": Row(APPLICATION, 200),
    "GET /v1/admin/users/{user}/received": Row(APPLICATION, 200),
    "GET /v1/admin/users/{user}/sessions": Row(APPLICATION, 200),
    "DELETE /v1/admin/users/{user}/sessions": Row(APPLICATION, 204, changes_accounts=True),
    "GET /v1/admin/users/{user}/devices": Row(APPLICATION, 200),
    "DELETE /v1/admin/users/{user}/devices/{device}": Row(APPLICATION, 404),
}
QUERIES: dict[str, dict[str, Any]] = {
    "GET /v1/presence": {"user": "{member}"},
    "GET /v1/chats/{chat}/messages/by-mid/{mid}": {"seq": "{seq}"},
    "GET /v1/users": {"user": "{member}"},
    "GET /v1/link-preview": {"url": "http://127.0.0.1/"},
    "GET /v1/link-preview/picture": {"url": "http://127.0.0.1/"},
    "GET /v1/search": {"q": "hello"},
    "GET /v1/user-search": {"q": "ann"},
}

# The expected status of each caller, by the kind of a route; None is the status of the row.
OUTSIDE = ("stranger", "removed", "banned")  # former members have no rights either
CALLERS = (
    "anonymous",
    *OUTSIDE,
    "muted",
    "member",
    "key without scope",
    "key with scope",
    "admin",
    "owner",
)
MEANING: dict[Kind, dict[str, int | None]] = {
    OPEN: dict.fromkeys(CALLERS),
    OWN: dict.fromkeys(CALLERS) | {"anonymous": 401, "key without scope": 403},
    MEMBER: dict.fromkeys(CALLERS)
    | dict.fromkeys(OUTSIDE, 404)
    | {"anonymous": 401, "key without scope": 403},
    MANAGER: dict.fromkeys(CALLERS, 403)
    | dict.fromkeys(OUTSIDE, 404)
    | {"anonymous": 401, "admin": None, "owner": None},
    SENDER: dict.fromkeys(CALLERS, 403)
    | dict.fromkeys(OUTSIDE, 404)
    | {"anonymous": 401, "muted": None, "member": None, "key with scope": None},
    APPLICATION: dict.fromkeys(CALLERS, 403) | {"anonymous": 401, "key with scope": None},
}


def rules() -> dict[str, str]:
    """Return the document's rule of each operation."""
    paths = msgspec.json.decode(DOCUMENT.read_bytes())["paths"]
    return {
        f"{method.upper()} {path}": operation["x-rule"]
        for path, item in paths.items()
        for method, operation in item.items()
    }


RULES = rules()


def scope_of(operation: str) -> str | None:
    """Return the scope that a key needs; None: keys are refused."""
    _, found, scope = RULES[operation].partition("key with scope ")
    return scope if found else None


@pytest.fixture
async def client(api: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A client that is anonymous until a header identifies it."""
    async with httpx.AsyncClient(base_url=api.endpoint, timeout=20) as made:
        yield made


_keys: dict[str, Keys] = {}


@pytest.fixture
async def keys(stack: Stack) -> Keys:
    """API keys by the scope that they lack; "" lacks none. They are created once for all rows."""
    if stack.secret not in _keys:
        made = {"": await make_key(stack, *SCOPES)}
        for scope in {scope_of(operation) for operation in ROWS if operation in RULES} - {None}:
            assert scope is not None
            made[scope] = await make_key(stack, *(SCOPES.keys() - {scope}))
        _keys[stack.secret] = made
    return _keys[stack.secret]


def test_every_operation_has_a_row_in_the_matrix() -> None:
    """A new route needs a row with its permissions."""
    assert set(ROWS) == set(RULES)


def test_every_scope_required_by_a_route_exists() -> None:
    """A key can be created for every route that accepts keys."""
    wanted = {scope for operation in RULES if (scope := scope_of(operation)) is not None}

    assert wanted <= set(SCOPES)


@pytest.mark.parametrize("operation", sorted(ROWS))
async def test_operation_response_to_each_caller_matches_the_matrix(
    stack: Stack, client: httpx.AsyncClient, keys: Keys, new_name: NewName, operation: str
) -> None:
    """Anonymous, three kinds of non-members, members, keys with and without scope, the owner."""
    row, scope = ROWS[operation], scope_of(operation)
    world = await make_world(stack, client, row, new_name)
    seq = await world.send("author")
    expected = {**MEANING[row.kind], **row.but}
    if scope is None and row.kind is not OPEN:
        expected["key with scope"] = 403
    statuses = {}
    for caller in CALLERS:
        headers, author = headers_of(world, keys, caller, scope)
        if row.kind is SENDER and caller != "muted":
            seq = await world.send(author)
        target = world.own_seq if row.kind is SENDER and caller == "muted" else seq
        response = await request(client, operation, row, world, target, headers)
        statuses[caller] = response.status_code
        assert response.status_code < 500, (caller, response.text)

    assert statuses == {each: row.ok if code is None else code for each, code in expected.items()}


def headers_of(
    world: World, keys: Keys, caller: str, scope: str | None
) -> tuple[dict[str, str], str]:
    """Return a caller's headers, and the role that sends the message of the request."""
    match caller:
        case "anonymous":
            return {}, "second"
        case "key without scope" | "key with scope":
            key = keys[(scope or "") if caller == "key without scope" else ""]
            as_user = world.users["second"]
            return {"Authorization": f"Bearer {key}", "X-Chat-As": as_user}, "second"
        case "member":
            return world.headers("member"), "member"
        case _:
            return world.headers(caller), "author"


async def request(
    client: httpx.AsyncClient,
    operation: str,
    row: Row,
    world: World,
    seq: int,
    headers: dict[str, str],
) -> httpx.Response:
    """Send the request of a row."""
    method, template = operation.split(" ")
    names = {"chat": world.chat, "seq": seq, "user": world.users["bystander"], "mid": world.mid}
    names |= {"companion": "ai-absent", "version": 1, "entry": "0123456789abcdef"}
    names["post"] = "01JD0000000000000000000000"
    absent = dict.fromkeys(
        ("device", "subscription", "file", "broadcast", "report", "receipt"), "absent"
    )
    query = world.fill(QUERIES.get(operation, {}), seq)
    body = None if row.fields is None else world.fill(row.fields, seq)
    path = template.format(**names, **absent)
    return await client.request(method, path, params=query, json=body, headers=headers)
