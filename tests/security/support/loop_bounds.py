"""CPU time of the event loop for the dearest input of each frame and route, in ms.

Measured by `test_request_cpu`: the longest tick, and all ticks together. `docs/limits.md` lists the
rows whose ticks take `LOOP_MS_MAX` or more together. Print the table of the document with
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
    "hello": (3.2, 5.8),
    "auth": (0.8, 2.3),
    "send": (2.1, 6.1),
    "edit": (2.0, 11.8),
    "delete": (0.8, 6.0),
    "react": (0.9, 7.0),
    "mark": (0.4, 5.2),
    "sync": (3.9, 25.9),
    "history": (2.6, 12.1),
    "chats": (4.9, 82.9),
    "open_direct": (1.5, 9.7),
    "create_chat": (6.5, 68.2),
    "invite": (2.4, 15.0),
    "join": (3.6, 12.0),
    "accept_invitation": (2.6, 11.6),
    "decline_invitation": (1.4, 4.1),
    "invitations": (0.8, 3.1),
    "leave": (0.8, 11.7),
    "remove": (0.8, 11.2),
    "set_role": (3.2, 8.8),
    "update_chat": (2.7, 19.1),
    "mute_member": (1.0, 12.3),
    "ban_member": (1.0, 14.1),
    "unban_member": (1.1, 8.3),
    "block": (1.5, 16.2),
    "unblock": (1.1, 10.8),
    "blocks": (2.2, 7.8),
    "report": (0.9, 4.3),
    "companions": (1.2, 4.1),
    "create_session": (1.3, 5.0),
    "get_session": (1.0, 3.9),
    "renew_session": (1.2, 4.2),
    "delete_session": (1.0, 5.1),
    "update_session": (0.9, 4.0),
    "sessions": (1.1, 4.4),
    "search": (5.5, 38.9),
    "stop": (0.4, 2.3),
    "join_turn": (0.4, 1.4),
    "typing": (1.2, 3.2),
    "watch": (5.2, 25.6),
    "unwatch": (0.7, 1.9),
    "state": (0.6, 1.1),
    "GET /healthz": (2.1, 3.8),
    "GET /readyz": (1.8, 5.0),
    "GET /v1/client-config": (2.2, 3.0),
    "POST /v1/auth/login": (1.7, 8.3),
    "POST /v1/auth/logout": (1.3, 3.8),
    "POST /v1/auth/refresh": (2.1, 3.9),
    "POST /v1/auth/register": (1.9, 5.0),
    "POST /v1/auth/logout-everywhere": (1.7, 8.4),
    "GET /v1/me": (1.1, 5.0),
    "GET /v1/me/sent": (1.6, 11.1),
    "GET /v1/me/messages": (1.2, 9.6),
    "GET /v1/me/received": (1.5, 7.5),
    "PATCH /v1/me": (1.2, 12.9),
    "DELETE /v1/me": (1.5, 9.5),
    "POST /v1/me/export": (1.8, 8.2),
    "GET /v1/me/export": (1.7, 6.1),
    "GET /v1/erasures/{receipt}": (2.4, 5.3),
    "GET /v1/me/devices": (1.6, 5.3),
    "DELETE /v1/me/devices/{device}": (2.3, 9.8),
    "PUT /v1/me/password": (1.6, 6.5),
    "GET /v1/me/push-subscriptions": (1.3, 5.9),
    "POST /v1/me/push-subscriptions": (1.5, 9.4),
    "DELETE /v1/me/push-subscriptions/{subscription}": (2.8, 9.0),
    "GET /v1/me/blocks": (1.4, 6.2),
    "PUT /v1/me/blocks/{user}": (1.2, 15.0),
    "DELETE /v1/me/blocks/{user}": (1.4, 11.2),
    "GET /v1/users/{user}": (2.3, 10.8),
    "GET /v1/users/{user}/followers": (4.3, 15.9),
    "GET /v1/users/{user}/following": (3.7, 13.4),
    "GET /v1/users/{user}/posts": (6.3, 34.4),
    "GET /v1/users/{user}/posts/{post}": (2.3, 7.7),
    "GET /v1/users/{user}/posts/{post}/likes": (1.7, 6.3),
    "PUT /v1/users/{user}/posts/{post}/like": (1.9, 8.3),
    "DELETE /v1/users/{user}/posts/{post}/like": (1.4, 7.1),
    "GET /v1/users/{user}/posts/{post}/image": (1.6, 7.7),
    "GET /v1/users/{user}/avatar": (2.7, 10.5),
    "GET /v1/users/{user}/timeline": (8.3, 43.8),
    "PUT /v1/me/following/{user}": (1.5, 13.0),
    "DELETE /v1/me/following/{user}": (1.3, 7.4),
    "GET /v1/me/favorites/posts": (1.4, 5.6),
    "PUT /v1/me/favorites/posts/{user}/{post}": (1.3, 6.5),
    "DELETE /v1/me/favorites/posts/{user}/{post}": (1.4, 6.4),
    "GET /v1/me/favorites/messages": (1.4, 6.2),
    "PUT /v1/me/favorites/messages/{chat}/{seq}": (1.0, 6.9),
    "DELETE /v1/me/favorites/messages/{chat}/{seq}": (1.5, 6.7),
    "POST /v1/me/posts": (2.0, 11.2),
    "PATCH /v1/me/posts/{post}": (1.5, 6.9),
    "DELETE /v1/me/posts/{post}": (1.2, 5.5),
    "PUT /v1/me/avatar": (1.7, 11.0),
    "DELETE /v1/me/avatar": (1.6, 12.4),
    "POST /v1/me/attachments": (2.7, 8.4),
    "GET /v1/me/attachments": (2.3, 8.9),
    "GET /v1/presence": (5.2, 16.9),
    "GET /v1/users": (5.0, 18.5),
    "GET /v1/chats": (7.2, 78.5),
    "POST /v1/chats": (7.2, 70.3),
    "PUT /v1/direct-chats/{user}": (1.4, 11.1),
    "GET /v1/chats/{chat}": (3.9, 11.1),
    "PATCH /v1/chats/{chat}": (4.9, 26.8),
    "GET /v1/chats/{chat}/members": (4.2, 10.9),
    "POST /v1/chats/{chat}/members": (4.2, 20.5),
    "PATCH /v1/chats/{chat}/members/{user}": (3.4, 9.9),
    "DELETE /v1/chats/{chat}/members/{user}": (1.2, 15.5),
    "PUT /v1/chats/{chat}/members/{user}/mute": (1.5, 15.9),
    "GET /v1/chats/{chat}/bans": (2.0, 11.6),
    "PUT /v1/chats/{chat}/bans/{user}": (1.5, 16.5),
    "DELETE /v1/chats/{chat}/bans/{user}": (1.5, 11.8),
    "PUT /v1/chats/{chat}/messages/{seq}/report": (2.5, 10.3),
    "GET /v1/chats/{chat}/reports": (3.2, 11.0),
    "POST /v1/chats/{chat}/reports/{seq}/{user}/resolve": (1.8, 8.1),
    "GET /v1/chats/{chat}/preview": (1.5, 8.7),
    "POST /v1/chats/{chat}/join": (3.7, 13.1),
    "GET /v1/invitations": (1.5, 7.1),
    "POST /v1/invitations/{chat}/accept": (3.3, 12.6),
    "DELETE /v1/invitations/{chat}": (1.4, 5.8),
    "POST /v1/chats/{chat}/leave": (1.6, 15.3),
    "PUT /v1/chats/{chat}/marks": (1.6, 7.4),
    "GET /v1/chats/{chat}/notifications": (1.8, 7.0),
    "PUT /v1/chats/{chat}/notifications": (1.5, 8.0),
    "GET /v1/chats/{chat}/picture": (2.2, 7.3),
    "GET /v1/chats/{chat}/preferences": (1.2, 6.3),
    "PATCH /v1/chats/{chat}/preferences": (2.1, 9.7),
    "GET /v1/me/chat-preferences": (1.3, 5.8),
    "GET /v1/me/pinned-chats": (1.7, 6.4),
    "PUT /v1/me/pinned-chats": (1.5, 8.2),
    "GET /v1/chats/{chat}/messages": (1.7, 12.3),
    "GET /v1/chats/{chat}/messages/between": (6.1, 46.6),
    "GET /v1/chats/{chat}/messages/active": (7.4, 35.5),
    "GET /v1/chats/{chat}/messages/with-files": (1.1, 7.4),
    "GET /v1/chats/{chat}/messages/{seq}": (1.2, 5.0),
    "GET /v1/chats/{chat}/messages/around/{seq}": (1.6, 9.0),
    "GET /v1/chats/{chat}/messages/by-mid/{mid}": (1.2, 4.8),
    "POST /v1/chats/{chat}/messages": (1.8, 5.6),
    "PATCH /v1/chats/{chat}/messages/{seq}": (2.9, 14.0),
    "DELETE /v1/chats/{chat}/messages/{seq}": (1.5, 8.3),
    "PUT /v1/chats/{chat}/messages/{seq}/reaction": (2.8, 11.9),
    "GET /v1/chats/{chat}/pins": (2.2, 10.4),
    "PUT /v1/chats/{chat}/pins/{seq}": (1.2, 11.0),
    "DELETE /v1/chats/{chat}/pins/{seq}": (1.2, 9.6),
    "GET /v1/link-preview": (2.2, 7.1),
    "GET /v1/link-preview/picture": (1.9, 7.0),
    "GET /v1/search": (4.8, 41.4),
    "GET /v1/user-search": (2.6, 10.6),
    "POST /v1/chats/{chat}/attachments": (3.0, 8.5),
    "POST /v1/attachments/{file}/complete": (2.1, 9.5),
    "GET /v1/attachments/{file}": (2.3, 8.8),
    "GET /v1/attachments/{file}/link": (2.3, 10.2),
    "GET /v1/companions": (2.2, 7.6),
    "POST /v1/companions": (3.9, 8.0),
    "GET /v1/companions/{companion}": (1.9, 7.1),
    "PATCH /v1/companions/{companion}": (2.7, 9.3),
    "DELETE /v1/companions/{companion}": (3.1, 8.6),
    "GET /v1/companions/{companion}/versions/{version}": (2.0, 7.5),
    "GET /v1/companions/{companion}/session": (1.6, 5.6),
    "POST /v1/companions/{companion}/session": (1.8, 6.8),
    "DELETE /v1/companions/{companion}/session": (1.6, 7.7),
    "POST /v1/companions/{companion}/session/renewal": (2.4, 7.1),
    "GET /v1/companion-sessions": (2.2, 8.3),
    "GET /v1/me/companions/{companion}/memory": (1.4, 6.3),
    "PATCH /v1/me/companions/{companion}/memory": (2.7, 10.3),
    "DELETE /v1/me/companions/{companion}/memory": (2.0, 9.0),
    "DELETE /v1/me/companions/{companion}/memory/{entry}": (1.5, 6.0),
    "PUT /v1/companion-sessions/{chat}/version": (2.2, 5.8),
    "POST /v1/admin/broadcasts": (8.8, 825.3),
    "GET /v1/admin/broadcasts/{broadcast}": (1.6, 6.2),
    "POST /v1/admin/chats": (7.1, 69.8),
    "GET /v1/admin/chats/{chat}/messages": (6.3, 43.0),
    "GET /v1/admin/chats/{chat}/messages/active": (7.1, 36.9),
    "POST /v1/admin/chats/{chat}/messages": (1.7, 6.6),
    "DELETE /v1/admin/chats/{chat}/messages/{seq}": (1.7, 8.5),
    "PUT /v1/admin/chats/{chat}/retention": (1.3, 14.4),
    "PUT /v1/admin/chats/{chat}/hold": (2.8, 9.8),
    "GET /v1/admin/chats/{chat}/hold": (1.6, 6.5),
    "DELETE /v1/admin/chats/{chat}/hold": (1.7, 5.7),
    "GET /v1/admin/chats/{chat}/held": (2.0, 6.3),
    "GET /v1/admin/holds": (1.2, 3.8),
    "GET /v1/admin/reports": (4.2, 11.2),
    "GET /v1/admin/overview": (2.7, 4.8),
    "GET /v1/admin/audit": (1.5, 5.0),
    "GET /v1/admin/cost": (5.0, 11.5),
    "POST /v1/admin/users": (2.4, 6.8),
    "GET /v1/admin/users/{user}": (2.1, 6.3),
    "DELETE /v1/admin/users/{user}": (2.7, 11.9),
    "PUT /v1/admin/users/{user}/ban": (1.9, 7.8),
    "DELETE /v1/admin/users/{user}/ban": (1.5, 5.3),
    "PUT /v1/admin/users/{user}/password": (1.2, 11.0),
    "GET /v1/admin/users/{user}/sent": (6.1, 46.5),
    "GET /v1/admin/users/{user}/messages": (6.7, 314.6),
    "GET /v1/admin/users/{user}/received": (1.7, 6.6),
    "GET /v1/admin/users/{user}/sessions": (1.3, 4.4),
    "DELETE /v1/admin/users/{user}/sessions": (1.7, 9.5),
    "GET /v1/admin/users/{user}/devices": (1.5, 4.5),
    "DELETE /v1/admin/users/{user}/devices/{device}": (1.7, 5.5),
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
    head = [
        "| frame or route | most expensive input | longest tick, ms | all ticks, ms |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    print(render_table(), end="")  # noqa: T201
