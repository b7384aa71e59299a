"""Bounds on the cost of the most expensive request of each frame and route.

- `redis`, `dynamodb`: calls. Each is the value measured by `test_request_calls` plus about 25 %,
  and more for pages whose calls depend on the caches of the processes. Increase a bound only on
  purpose, together with the costs in `chatserver.protocol.request_costs`. Frames without a response
  include a `chats` request, whose response shows that they were handled. Adding a member whose
  groups were not counted for a day makes one more call to DynamoDB: `test_request_calls` repeats a
  request that exceeds its bound.
- `tick_ms`, `total_ms`: CPU time of the event loop, measured by `test_request_cpu`: of the longest
  tick, and of all ticks together. `docs/limits.md` lists the rows whose ticks take `LOOP_MS_MAX` or
  more together. Print the table of the document with
  ``python -m tests.security.support.request_bounds``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tests.security import test_authorization_http as http_matrix
from tests.security.support.dearest_inputs import DEAREST

LOOP_MS_MAX: Final = 10.0
# A core that other programs share runs the same instructions in up to twice the CPU time.
NOISE_FACTOR: Final = 2.5


class Bounds(NamedTuple):
    """Bounds on the calls, and the measured CPU time."""

    redis: int
    dynamodb: int
    tick_ms: float
    total_ms: float


BOUNDS: Final[dict[str, Bounds]] = {
    "hello": Bounds(4, 1, 3.2, 5.8),
    "auth": Bounds(6, 1, 0.8, 2.3),
    "send": Bounds(8, 1, 2.1, 6.1),
    "edit": Bounds(9, 1, 2.0, 11.8),
    "delete": Bounds(10, 1, 0.8, 6.0),
    "react": Bounds(8, 1, 0.9, 7.0),
    "mark": Bounds(11, 1, 0.4, 5.2),
    "sync": Bounds(171, 1, 3.9, 25.9),
    "history": Bounds(31, 1, 2.6, 12.1),
    "chats": Bounds(173, 1, 4.9, 82.9),
    "open_direct": Bounds(15, 14, 1.5, 9.7),
    "create_chat": Bounds(38, 22, 6.5, 68.2),
    "invite": Bounds(306, 14, 2.4, 15.0),
    "join": Bounds(13, 6, 3.6, 12.0),
    "accept_invitation": Bounds(15, 9, 2.6, 11.6),
    "decline_invitation": Bounds(10, 2, 1.4, 4.1),
    "invitations": Bounds(10, 2, 0.8, 3.1),
    "leave": Bounds(33, 8, 0.8, 11.7),
    "remove": Bounds(31, 7, 0.8, 11.2),
    "set_role": Bounds(13, 4, 3.2, 8.8),
    "update_chat": Bounds(31, 7, 2.7, 19.1),
    "mute_member": Bounds(31, 7, 1.0, 12.3),
    "ban_member": Bounds(41, 8, 1.0, 14.1),
    "unban_member": Bounds(13, 6, 1.1, 8.3),
    "block": Bounds(25, 11, 1.5, 16.2),
    "unblock": Bounds(34, 7, 1.1, 10.8),
    "blocks": Bounds(10, 2, 2.2, 7.8),
    "report": Bounds(11, 2, 0.9, 4.3),
    "companions": Bounds(10, 2, 1.2, 4.1),
    "create_session": Bounds(11, 2, 1.3, 5.0),
    "get_session": Bounds(10, 2, 1.0, 3.9),
    "renew_session": Bounds(11, 2, 1.2, 4.2),
    "delete_session": Bounds(10, 2, 1.0, 5.1),
    "update_session": Bounds(10, 1, 0.9, 4.0),
    "sessions": Bounds(10, 2, 1.1, 4.4),
    "search": Bounds(6, 1, 5.5, 38.9),
    "stop": Bounds(8, 1, 0.4, 2.3),
    "join_turn": Bounds(5, 1, 0.4, 1.4),
    "typing": Bounds(183, 1, 1.2, 3.2),
    "watch": Bounds(251, 1, 5.2, 25.6),
    "unwatch": Bounds(180, 1, 0.7, 1.9),
    "state": Bounds(179, 1, 0.6, 1.1),
    "GET /healthz": Bounds(6, 1, 2.1, 3.8),
    "GET /readyz": Bounds(4, 2, 1.8, 5.0),
    "GET /v1/client-config": Bounds(3, 1, 2.2, 3.0),
    "POST /v1/auth/login": Bounds(5, 2, 1.7, 8.3),
    "POST /v1/auth/logout": Bounds(5, 1, 1.3, 3.8),
    "POST /v1/auth/refresh": Bounds(5, 1, 2.1, 3.9),
    "POST /v1/auth/register": Bounds(4, 1, 1.9, 5.0),
    "POST /v1/auth/logout-everywhere": Bounds(9, 4, 1.7, 8.4),
    "GET /v1/me": Bounds(9, 2, 1.1, 5.0),
    "GET /v1/me/sent": Bounds(6, 2, 1.6, 11.1),
    "GET /v1/me/messages": Bounds(9, 4, 1.2, 9.6),
    "GET /v1/me/received": Bounds(6, 2, 1.5, 7.5),
    "PATCH /v1/me": Bounds(6, 7, 1.2, 12.9),
    "DELETE /v1/me": Bounds(9, 6, 1.5, 9.5),
    "POST /v1/me/export": Bounds(6, 3, 1.8, 8.2),
    "GET /v1/me/export": Bounds(6, 2, 1.7, 6.1),
    "GET /v1/erasures/{receipt}": Bounds(3, 2, 2.4, 5.3),
    "GET /v1/me/devices": Bounds(8, 2, 1.6, 5.3),
    "DELETE /v1/me/devices/{device}": Bounds(5, 2, 2.3, 9.8),
    "PUT /v1/me/password": Bounds(8, 2, 1.6, 6.5),
    "GET /v1/me/push-subscriptions": Bounds(8, 2, 1.3, 5.9),
    "POST /v1/me/push-subscriptions": Bounds(9, 4, 1.5, 9.4),
    "DELETE /v1/me/push-subscriptions/{subscription}": Bounds(6, 2, 2.8, 9.0),
    "GET /v1/me/blocks": Bounds(6, 2, 1.4, 6.2),
    "PUT /v1/me/blocks/{user}": Bounds(14, 9, 1.2, 15.0),
    "DELETE /v1/me/blocks/{user}": Bounds(13, 6, 1.4, 11.2),
    "GET /v1/users/{user}": Bounds(50, 10, 2.3, 10.8),
    "GET /v1/users/{user}/followers": Bounds(6, 4, 4.3, 15.9),
    "GET /v1/users/{user}/following": Bounds(6, 4, 3.7, 13.4),
    "GET /v1/users/{user}/posts": Bounds(6, 4, 6.3, 34.4),
    "GET /v1/users/{user}/posts/{post}": Bounds(6, 3, 2.3, 7.7),
    "GET /v1/users/{user}/posts/{post}/likes": Bounds(6, 3, 1.7, 6.3),
    "PUT /v1/users/{user}/posts/{post}/like": Bounds(6, 3, 1.9, 8.3),
    "DELETE /v1/users/{user}/posts/{post}/like": Bounds(8, 2, 1.4, 7.1),
    "GET /v1/users/{user}/posts/{post}/image": Bounds(6, 4, 1.6, 7.7),
    "GET /v1/users/{user}/avatar": Bounds(50, 8, 2.7, 10.5),
    "GET /v1/users/{user}/timeline": Bounds(6, 1, 8.3, 43.8),
    "PUT /v1/me/following/{user}": Bounds(11, 10, 1.5, 13.0),
    "DELETE /v1/me/following/{user}": Bounds(8, 2, 1.3, 7.4),
    "GET /v1/me/favorites/posts": Bounds(6, 3, 1.4, 5.6),
    "PUT /v1/me/favorites/posts/{user}/{post}": Bounds(6, 3, 1.3, 6.5),
    "DELETE /v1/me/favorites/posts/{user}/{post}": Bounds(6, 2, 1.4, 6.4),
    "GET /v1/me/favorites/messages": Bounds(6, 2, 1.4, 6.2),
    "PUT /v1/me/favorites/messages/{chat}/{seq}": Bounds(18, 6, 1.0, 6.9),
    "DELETE /v1/me/favorites/messages/{chat}/{seq}": Bounds(6, 2, 1.5, 6.7),
    "POST /v1/me/posts": Bounds(9, 9, 2.0, 11.2),
    "PATCH /v1/me/posts/{post}": Bounds(6, 2, 1.5, 6.9),
    "DELETE /v1/me/posts/{post}": Bounds(8, 2, 1.2, 5.5),
    "PUT /v1/me/avatar": Bounds(9, 6, 1.7, 11.0),
    "DELETE /v1/me/avatar": Bounds(6, 6, 1.6, 12.4),
    "POST /v1/me/attachments": Bounds(16, 2, 2.7, 8.4),
    "GET /v1/me/attachments": Bounds(7, 1, 2.3, 8.9),
    "GET /v1/presence": Bounds(50, 1, 5.2, 16.9),
    "GET /v1/users": Bounds(46, 2, 5.0, 18.5),
    "GET /v1/chats": Bounds(181, 1, 7.2, 78.5),
    "POST /v1/chats": Bounds(24, 22, 7.2, 70.3),
    "PUT /v1/direct-chats/{user}": Bounds(9, 11, 1.4, 11.1),
    "GET /v1/chats/{chat}": Bounds(8, 2, 3.9, 11.1),
    "PATCH /v1/chats/{chat}": Bounds(24, 7, 4.9, 26.8),
    "GET /v1/chats/{chat}/members": Bounds(8, 2, 4.2, 10.9),
    "POST /v1/chats/{chat}/members": Bounds(10, 6, 4.2, 20.5),
    "PATCH /v1/chats/{chat}/members/{user}": Bounds(10, 4, 3.4, 9.9),
    "DELETE /v1/chats/{chat}/members/{user}": Bounds(21, 7, 1.2, 15.5),
    "PUT /v1/chats/{chat}/members/{user}/mute": Bounds(18, 7, 1.5, 15.9),
    "GET /v1/chats/{chat}/bans": Bounds(9, 4, 2.0, 11.6),
    "PUT /v1/chats/{chat}/bans/{user}": Bounds(20, 8, 1.5, 16.5),
    "DELETE /v1/chats/{chat}/bans/{user}": Bounds(8, 6, 1.5, 11.8),
    "PUT /v1/chats/{chat}/messages/{seq}/report": Bounds(8, 2, 2.5, 10.3),
    "GET /v1/chats/{chat}/reports": Bounds(5, 4, 3.2, 11.0),
    "POST /v1/chats/{chat}/reports/{seq}/{user}/resolve": Bounds(5, 4, 1.8, 8.1),
    "GET /v1/chats/{chat}/preview": Bounds(8, 4, 1.5, 8.7),
    "POST /v1/chats/{chat}/join": Bounds(8, 6, 3.7, 13.1),
    "GET /v1/invitations": Bounds(6, 2, 1.5, 7.1),
    "POST /v1/invitations/{chat}/accept": Bounds(15, 9, 3.3, 12.6),
    "DELETE /v1/invitations/{chat}": Bounds(6, 2, 1.4, 5.8),
    "POST /v1/chats/{chat}/leave": Bounds(20, 8, 1.6, 15.3),
    "PUT /v1/chats/{chat}/marks": Bounds(13, 1, 1.6, 7.4),
    "GET /v1/chats/{chat}/notifications": Bounds(6, 2, 1.8, 7.0),
    "PUT /v1/chats/{chat}/notifications": Bounds(9, 5, 1.5, 8.0),
    "GET /v1/chats/{chat}/picture": Bounds(9, 3, 2.2, 7.3),
    "GET /v1/chats/{chat}/preferences": Bounds(9, 3, 1.2, 6.3),
    "PATCH /v1/chats/{chat}/preferences": Bounds(9, 5, 2.1, 9.7),
    "GET /v1/me/chat-preferences": Bounds(6, 2, 1.3, 5.8),
    "GET /v1/me/pinned-chats": Bounds(6, 2, 1.7, 6.4),
    "PUT /v1/me/pinned-chats": Bounds(8, 5, 1.5, 8.2),
    "GET /v1/chats/{chat}/messages": Bounds(15, 1, 1.7, 12.3),
    "GET /v1/chats/{chat}/messages/between": Bounds(9, 2, 6.1, 46.6),
    "GET /v1/chats/{chat}/messages/active": Bounds(9, 2, 7.4, 35.5),
    "GET /v1/chats/{chat}/messages/with-files": Bounds(9, 3, 1.1, 7.4),
    "GET /v1/chats/{chat}/messages/{seq}": Bounds(15, 1, 1.2, 5.0),
    "GET /v1/chats/{chat}/messages/around/{seq}": Bounds(23, 1, 1.6, 9.0),
    "GET /v1/chats/{chat}/messages/by-mid/{mid}": Bounds(13, 1, 1.2, 4.8),
    "POST /v1/chats/{chat}/messages": Bounds(10, 1, 1.8, 5.6),
    "PATCH /v1/chats/{chat}/messages/{seq}": Bounds(11, 1, 2.9, 14.0),
    "DELETE /v1/chats/{chat}/messages/{seq}": Bounds(15, 1, 1.5, 8.3),
    "PUT /v1/chats/{chat}/messages/{seq}/reaction": Bounds(11, 1, 2.8, 11.9),
    "GET /v1/chats/{chat}/pins": Bounds(6, 2, 2.2, 10.4),
    # No persist worker runs here, so this polls Redis until its deadline.
    "PUT /v1/chats/{chat}/pins/{seq}": Bounds(
        450, 9, 1.2, 11.0
    ),  # this may advance the write-sharding horizon
    "DELETE /v1/chats/{chat}/pins/{seq}": Bounds(13, 6, 1.2, 9.6),
    "GET /v1/link-preview": Bounds(9, 2, 2.2, 7.1),
    "GET /v1/link-preview/picture": Bounds(9, 2, 1.9, 7.0),
    "GET /v1/user-search": Bounds(6, 8, 2.6, 10.6),
    "GET /v1/search": Bounds(
        6, 2, 4.8, 41.4
    ),  # without an index; with one, CHECKED_MAX history reads
    "POST /v1/chats/{chat}/attachments": Bounds(8, 2, 3.0, 8.5),
    "POST /v1/attachments/{file}/complete": Bounds(6, 2, 2.1, 9.5),
    "GET /v1/attachments/{file}": Bounds(6, 2, 2.3, 8.8),
    "GET /v1/attachments/{file}/link": Bounds(6, 2, 2.3, 10.2),
    "GET /v1/companions": Bounds(5, 2, 2.2, 7.6),
    "POST /v1/companions": Bounds(5, 2, 3.9, 8.0),
    "GET /v1/companions/{companion}": Bounds(5, 2, 1.9, 7.1),
    "PATCH /v1/companions/{companion}": Bounds(8, 2, 2.7, 9.3),
    "DELETE /v1/companions/{companion}": Bounds(5, 3, 3.1, 8.6),
    "GET /v1/companions/{companion}/versions/{version}": Bounds(5, 2, 2.0, 7.5),
    "GET /v1/companions/{companion}/session": Bounds(6, 2, 1.6, 5.6),
    "POST /v1/companions/{companion}/session": Bounds(10, 2, 1.8, 6.8),
    "DELETE /v1/companions/{companion}/session": Bounds(6, 2, 1.6, 7.7),
    "POST /v1/companions/{companion}/session/renewal": Bounds(6, 2, 2.4, 7.1),
    "GET /v1/companion-sessions": Bounds(9, 2, 2.2, 8.3),
    "GET /v1/me/companions/{companion}/memory": Bounds(6, 1, 1.4, 6.3),
    "PATCH /v1/me/companions/{companion}/memory": Bounds(6, 3, 2.7, 10.3),
    "DELETE /v1/me/companions/{companion}/memory": Bounds(6, 3, 2.0, 9.0),
    "DELETE /v1/me/companions/{companion}/memory/{entry}": Bounds(6, 1, 1.5, 6.0),
    "PUT /v1/companion-sessions/{chat}/version": Bounds(6, 1, 2.2, 5.8),
    "POST /v1/admin/broadcasts": Bounds(14, 21, 8.8, 825.3),
    "GET /v1/admin/broadcasts/{broadcast}": Bounds(6, 2, 1.6, 6.2),
    "POST /v1/admin/chats": Bounds(40, 27, 7.1, 69.8),
    "GET /v1/admin/chats/{chat}/messages": Bounds(10, 6, 6.3, 43.0),
    "GET /v1/admin/chats/{chat}/messages/active": Bounds(10, 6, 7.1, 36.9),
    "POST /v1/admin/chats/{chat}/messages": Bounds(10, 3, 1.7, 6.6),
    "DELETE /v1/admin/chats/{chat}/messages/{seq}": Bounds(10, 3, 1.7, 8.5),
    "PUT /v1/admin/chats/{chat}/retention": Bounds(18, 9, 1.3, 14.4),
    "PUT /v1/admin/chats/{chat}/hold": Bounds(5, 4, 2.8, 9.8),
    "GET /v1/admin/chats/{chat}/hold": Bounds(5, 2, 1.6, 6.5),
    "DELETE /v1/admin/chats/{chat}/hold": Bounds(6, 3, 1.7, 5.7),
    "GET /v1/admin/chats/{chat}/held": Bounds(5, 2, 2.0, 6.3),
    "GET /v1/admin/holds": Bounds(5, 2, 1.2, 3.8),
    "GET /v1/admin/reports": Bounds(5, 3, 4.2, 11.2),
    "GET /v1/admin/overview": Bounds(6, 1, 2.7, 4.8),
    "GET /v1/admin/audit": Bounds(8, 1, 1.5, 5.0),
    "GET /v1/admin/cost": Bounds(13, 1, 5.0, 11.5),
    "POST /v1/admin/users": Bounds(6, 2, 2.4, 6.8),
    "GET /v1/admin/users/{user}": Bounds(5, 2, 2.1, 6.3),
    "DELETE /v1/admin/users/{user}": Bounds(11, 6, 2.7, 11.9),
    "PUT /v1/admin/users/{user}/ban": Bounds(9, 3, 1.9, 7.8),
    "DELETE /v1/admin/users/{user}/ban": Bounds(6, 3, 1.5, 5.3),
    "PUT /v1/admin/users/{user}/password": Bounds(8, 7, 1.2, 11.0),
    "GET /v1/admin/users/{user}/sent": Bounds(6, 2, 6.1, 46.5),
    "GET /v1/admin/users/{user}/messages": Bounds(20, 4, 6.7, 314.6),
    "GET /v1/admin/users/{user}/received": Bounds(8, 2, 1.7, 6.6),
    "GET /v1/admin/users/{user}/sessions": Bounds(6, 1, 1.3, 4.4),
    "DELETE /v1/admin/users/{user}/sessions": Bounds(8, 6, 1.7, 9.5),
    "GET /v1/admin/users/{user}/devices": Bounds(5, 2, 1.5, 4.5),
    "DELETE /v1/admin/users/{user}/devices/{device}": Bounds(5, 2, 1.7, 5.5),
}


def get_loop_bounds(name: str) -> tuple[float, float]:
    """Return the bounds that the test checks, in ms: for the longest tick, and for all ticks."""
    return NOISE_FACTOR * LOOP_MS_MAX, NOISE_FACTOR * max(LOOP_MS_MAX, BOUNDS[name].total_ms)


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
        f"| `{name}` | {describe_input(name)} | {row.tick_ms:.1f} | {row.total_ms:.0f} |"
        for name, row in sorted(BOUNDS.items(), key=lambda item: -item[1].total_ms)
        if row.total_ms >= LOOP_MS_MAX
    ]
    head = [
        "| frame or route | most expensive input | longest tick, ms | all ticks, ms |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    print(render_table(), end="")  # noqa: T201
