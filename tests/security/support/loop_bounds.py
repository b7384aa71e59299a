"""CPU time of the event loop for the dearest input of each frame and route, in ms.

Measured by `test_request_cpu` while other programs used both cores; `docs/limits.md` lists the rows
of `LOOP_MS_MAX` or more. Print the table of the document with
``python -m tests.security.support.loop_bounds``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tests.security import test_authorization_http as http_matrix
from tests.security.support.dearest_inputs import DEAREST

LOOP_MS_MAX: Final = 10.0
# A core that other programs share runs the same instructions in up to twice the CPU time.
NOISE_FACTOR: Final = 2.5

MEASURED_MS: Final[dict[str, tuple[float, float]]] = {
    "hello": (0.0, 4.1),
    "auth": (0.0, 2.2),
    "send": (0.0, 4.4),
    "edit": (0.0, 6.8),
    "delete": (0.0, 4.1),
    "react": (0.0, 4.8),
    "mark": (0.0, 2.8),
    "sync": (0.0, 18),
    "history": (0.0, 8.6),
    "chats": (0.0, 67),
    "open_direct": (0.0, 8.5),
    "create_chat": (0.0, 55),
    "invite": (0.0, 11),
    "join": (0.0, 6.8),
    "accept_invitation": (0.0, 11),
    "decline_invitation": (0.0, 4.5),
    "invitations": (0.0, 3.3),
    "leave": (0.0, 12),
    "remove": (0.0, 11),
    "set_role": (0.0, 9.9),
    "update_chat": (0.0, 18),
    "mute_member": (0.0, 8.7),
    "ban_member": (0.0, 9.6),
    "unban_member": (0.0, 5.0),
    "block": (0.0, 9.9),
    "unblock": (0.0, 5.2),
    "blocks": (0.0, 3.5),
    "report": (0.0, 3.4),
    "companions": (0.0, 3.0),
    "create_session": (0.0, 3.1),
    "get_session": (0.0, 2.5),
    "renew_session": (0.0, 2.5),
    "delete_session": (0.0, 2.8),
    "update_session": (0.0, 2.1),
    "sessions": (0.0, 4.2),
    "search": (0.0, 33),
    "stop": (0.0, 2.8),
    "join_turn": (0.0, 1.8),
    "typing": (0.0, 3.4),
    "watch": (0.0, 20),
    "unwatch": (0.0, 1.0),
    "state": (0.0, 2.9),
    "GET /healthz": (0.0, 2.1),
    "GET /readyz": (0.0, 4.3),
    "GET /v1/client-config": (0.0, 2.3),
    "POST /v1/auth/login": (0.0, 5.1),
    "POST /v1/auth/logout": (0.0, 3.4),
    "POST /v1/auth/refresh": (0.0, 4.3),
    "POST /v1/auth/register": (0.0, 4.6),
    "POST /v1/auth/logout-everywhere": (0.0, 6.7),
    "GET /v1/me": (0.0, 4.7),
    "GET /v1/me/sent": (0.0, 7.8),
    "GET /v1/me/messages": (0.0, 10),
    "GET /v1/me/received": (0.0, 4.6),
    "PATCH /v1/me": (0.0, 10),
    "DELETE /v1/me": (0.0, 7.1),
    "POST /v1/me/export": (0.0, 5.0),
    "GET /v1/me/export": (0.0, 5.4),
    "GET /v1/erasures/{receipt}": (0.0, 4.2),
    "GET /v1/me/devices": (0.0, 4.4),
    "DELETE /v1/me/devices/{device}": (0.0, 4.4),
    "PUT /v1/me/password": (0.0, 4.9),
    "GET /v1/me/push-subscriptions": (0.0, 4.4),
    "POST /v1/me/push-subscriptions": (0.0, 6.4),
    "DELETE /v1/me/push-subscriptions/{subscription}": (0.0, 4.9),
    "GET /v1/me/blocks": (0.0, 3.7),
    "PUT /v1/me/blocks/{user}": (0.0, 9.2),
    "DELETE /v1/me/blocks/{user}": (0.0, 5.7),
    "GET /v1/users/{user}": (0.0, 5.9),
    "GET /v1/users/{user}/followers": (0.0, 10),
    "GET /v1/users/{user}/following": (0.0, 10),
    "GET /v1/users/{user}/posts": (0.0, 29),
    "GET /v1/users/{user}/posts/{post}": (0.0, 4.9),
    "GET /v1/users/{user}/posts/{post}/likes": (0.0, 5.0),
    "PUT /v1/users/{user}/posts/{post}/like": (0.0, 5.3),
    "DELETE /v1/users/{user}/posts/{post}/like": (0.0, 3.9),
    "GET /v1/users/{user}/posts/{post}/image": (0.0, 4.8),
    "GET /v1/users/{user}/avatar": (0.0, 5.3),
    "GET /v1/users/{user}/timeline": (0.0, 34),
    "PUT /v1/me/following/{user}": (0.0, 13),
    "DELETE /v1/me/following/{user}": (0.0, 4.4),
    "GET /v1/me/favorites/posts": (0.0, 4.7),
    "PUT /v1/me/favorites/posts/{user}/{post}": (0.0, 5.0),
    "DELETE /v1/me/favorites/posts/{user}/{post}": (0.0, 3.3),
    "GET /v1/me/favorites/messages": (0.0, 4.8),
    "PUT /v1/me/favorites/messages/{chat}/{seq}": (0.0, 6.6),
    "DELETE /v1/me/favorites/messages/{chat}/{seq}": (0.0, 4.9),
    "POST /v1/me/posts": (0.0, 11),
    "PATCH /v1/me/posts/{post}": (0.0, 5.0),
    "DELETE /v1/me/posts/{post}": (0.0, 5.0),
    "PUT /v1/me/avatar": (0.0, 7.0),
    "DELETE /v1/me/avatar": (0.0, 6.1),
    "POST /v1/me/attachments": (0.0, 6.1),
    "GET /v1/me/attachments": (0.0, 4.1),
    "GET /v1/presence": (0.0, 14),
    "GET /v1/users": (0.0, 15),
    "GET /v1/chats": (0.0, 90),
    "POST /v1/chats": (0.0, 63),
    "PUT /v1/direct-chats/{user}": (0.0, 12),
    "GET /v1/chats/{chat}": (0.0, 6.6),
    "PATCH /v1/chats/{chat}": (0.0, 22),
    "GET /v1/chats/{chat}/members": (0.0, 7.8),
    "POST /v1/chats/{chat}/members": (0.0, 19),
    "PATCH /v1/chats/{chat}/members/{user}": (0.0, 13),
    "DELETE /v1/chats/{chat}/members/{user}": (0.0, 10),
    "PUT /v1/chats/{chat}/members/{user}/mute": (0.0, 13),
    "GET /v1/chats/{chat}/bans": (0.0, 5.0),
    "PUT /v1/chats/{chat}/bans/{user}": (0.0, 10),
    "DELETE /v1/chats/{chat}/bans/{user}": (0.0, 6.9),
    "PUT /v1/chats/{chat}/messages/{seq}/report": (0.0, 4.7),
    "GET /v1/chats/{chat}/reports": (0.0, 9.1),
    "POST /v1/chats/{chat}/reports/{seq}/{user}/resolve": (0.0, 6.5),
    "GET /v1/chats/{chat}/preview": (0.0, 5.4),
    "POST /v1/chats/{chat}/join": (0.0, 9.8),
    "GET /v1/invitations": (0.0, 5.0),
    "POST /v1/invitations/{chat}/accept": (0.0, 11),
    "DELETE /v1/invitations/{chat}": (0.0, 4.2),
    "POST /v1/chats/{chat}/leave": (0.0, 13),
    "PUT /v1/chats/{chat}/marks": (0.0, 5.0),
    "GET /v1/chats/{chat}/notifications": (0.0, 5.3),
    "PUT /v1/chats/{chat}/notifications": (0.0, 5.6),
    "GET /v1/chats/{chat}/picture": (0.0, 6.2),
    "GET /v1/chats/{chat}/preferences": (0.0, 6.0),
    "PATCH /v1/chats/{chat}/preferences": (0.0, 5.4),
    "GET /v1/me/chat-preferences": (0.0, 4.5),
    "GET /v1/me/pinned-chats": (0.0, 5.0),
    "PUT /v1/me/pinned-chats": (0.0, 5.6),
    "GET /v1/chats/{chat}/messages": (0.0, 9.2),
    "GET /v1/chats/{chat}/messages/between": (0.0, 29),
    "GET /v1/chats/{chat}/messages/active": (0.0, 27),
    "GET /v1/chats/{chat}/messages/with-files": (0.0, 6.5),
    "GET /v1/chats/{chat}/messages/{seq}": (0.0, 4.7),
    "GET /v1/chats/{chat}/messages/around/{seq}": (0.0, 8.1),
    "GET /v1/chats/{chat}/messages/by-mid/{mid}": (0.0, 4.7),
    "POST /v1/chats/{chat}/messages": (0.0, 6.2),
    "PATCH /v1/chats/{chat}/messages/{seq}": (0.0, 13),
    "DELETE /v1/chats/{chat}/messages/{seq}": (0.0, 4.6),
    "PUT /v1/chats/{chat}/messages/{seq}/reaction": (0.0, 7.9),
    "GET /v1/chats/{chat}/pins": (0.0, 5.2),
    "PUT /v1/chats/{chat}/pins/{seq}": (0.0, 9.5),
    "DELETE /v1/chats/{chat}/pins/{seq}": (0.0, 7.0),
    "GET /v1/link-preview": (0.0, 2.9),
    "GET /v1/link-preview/picture": (0.0, 3.9),
    "GET /v1/search": (0.0, 25),
    "GET /v1/user-search": (0.0, 5.2),
    "POST /v1/chats/{chat}/attachments": (0.0, 5.1),
    "POST /v1/attachments/{file}/complete": (0.0, 5.0),
    "GET /v1/attachments/{file}": (0.0, 5.2),
    "GET /v1/attachments/{file}/link": (0.0, 5.7),
    "GET /v1/companions": (0.0, 4.5),
    "POST /v1/companions": (0.0, 4.5),
    "GET /v1/companions/{companion}": (0.0, 4.8),
    "PATCH /v1/companions/{companion}": (0.0, 5.2),
    "DELETE /v1/companions/{companion}": (0.0, 4.4),
    "GET /v1/companions/{companion}/versions/{version}": (0.0, 4.8),
    "GET /v1/companions/{companion}/session": (0.0, 4.9),
    "POST /v1/companions/{companion}/session": (0.0, 5.0),
    "DELETE /v1/companions/{companion}/session": (0.0, 4.3),
    "POST /v1/companions/{companion}/session/renewal": (0.0, 4.6),
    "GET /v1/companion-sessions": (0.0, 4.0),
    "GET /v1/me/companions/{companion}/memory": (0.0, 4.6),
    "PATCH /v1/me/companions/{companion}/memory": (0.0, 5.4),
    "DELETE /v1/me/companions/{companion}/memory": (0.0, 5.0),
    "DELETE /v1/me/companions/{companion}/memory/{entry}": (0.0, 4.3),
    "PUT /v1/companion-sessions/{chat}/version": (0.0, 4.9),
    "POST /v1/admin/broadcasts": (0.0, 114),
    "GET /v1/admin/broadcasts/{broadcast}": (0.0, 4.3),
    "POST /v1/admin/chats": (0.0, 55),
    "GET /v1/admin/chats/{chat}/messages": (0.0, 33),
    "GET /v1/admin/chats/{chat}/messages/active": (0.0, 25),
    "POST /v1/admin/chats/{chat}/messages": (0.0, 4.8),
    "DELETE /v1/admin/chats/{chat}/messages/{seq}": (0.0, 6.2),
    "PUT /v1/admin/chats/{chat}/retention": (0.0, 11),
    "PUT /v1/admin/chats/{chat}/hold": (0.0, 5.2),
    "GET /v1/admin/chats/{chat}/hold": (0.0, 5.0),
    "DELETE /v1/admin/chats/{chat}/hold": (0.0, 3.3),
    "GET /v1/admin/chats/{chat}/held": (0.0, 4.1),
    "GET /v1/admin/holds": (0.0, 3.9),
    "GET /v1/admin/reports": (0.0, 11),
    "GET /v1/admin/overview": (0.0, 4.2),
    "GET /v1/admin/audit": (0.0, 2.5),
    "GET /v1/admin/cost": (0.0, 10.0),
    "POST /v1/admin/users": (0.0, 4.2),
    "GET /v1/admin/users/{user}": (0.0, 4.2),
    "DELETE /v1/admin/users/{user}": (0.0, 6.8),
    "PUT /v1/admin/users/{user}/ban": (0.0, 4.3),
    "DELETE /v1/admin/users/{user}/ban": (0.0, 5.0),
    "PUT /v1/admin/users/{user}/password": (0.0, 7.1),
    "GET /v1/admin/users/{user}/sent": (0.0, 38),
    "GET /v1/admin/users/{user}/messages": (0.0, 197),
    "GET /v1/admin/users/{user}/received": (0.0, 4.2),
    "GET /v1/admin/users/{user}/sessions": (0.0, 3.1),
    "DELETE /v1/admin/users/{user}/sessions": (0.0, 4.7),
    "GET /v1/admin/users/{user}/devices": (0.0, 3.7),
    "DELETE /v1/admin/users/{user}/devices/{device}": (0.0, 4.8),
}


def get_bounds(name: str) -> tuple[float, float]:
    """Return the bounds that the test checks, in ms: for the longest tick, and for all ticks."""
    return NOISE_FACTOR * LOOP_MS_MAX, NOISE_FACTOR * max(LOOP_MS_MAX, MEASURED_MS[name][1])


def describe_input(name: str) -> str:
    """Return the dearest input of a frame or route, for the document."""
    if name in DEAREST:
        return DEAREST[name].label
    return "a full page" if name in PAGES else "a user with full lists"


def _list_pages() -> set[str]:
    paths = msgspec.json.decode(http_matrix.DOCUMENT.read_bytes())["paths"]
    routes = {
        f"{method.upper()} {path}"
        for path, item in paths.items()
        for method, operation in item.items()
        if any(each["name"] == "limit" for each in operation.get("parameters", ()))
    }
    return {*routes, "history", "chats", "blocks", "invitations", "sync", "companions", "sessions"}


PAGES: Final = _list_pages()


def render_table() -> str:
    """Return the table of the document."""
    rows = [
        f"| `{name}` | {describe_input(name)} | {tick_ms:.1f} | {total_ms:.0f} |"
        for name, (tick_ms, total_ms) in sorted(MEASURED_MS.items(), key=lambda row: -row[1][1])
        if total_ms >= LOOP_MS_MAX
    ]
    head = ["| frame or route | dearest input | longest tick, ms | all ticks, ms |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    print(render_table(), end="")  # noqa: T201
