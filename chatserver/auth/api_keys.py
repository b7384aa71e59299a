"""API keys of the host application's servers. Pure functions.

    ck_<id>_<secret>

The secret is 256 random bits. Guessing it is infeasible, so a plain SHA-256 of it is stored, not a
slow hash. The prefix lets scanners of code repositories detect leaked keys.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

from chatserver.errors import Unauthenticated

SCOPES: Final = {
    "users:read": "read users and their sessions",
    "users:write": "create, ban and unban users, end their sessions",
    "users:impersonate": "set users' passwords, and so log in as them; admins are excluded",
    "users:erase": "erase users permanently",
    "chats:read": "read chats and their history",
    "chats:write": "create chats, change their members and settings",
    "attachments:read": "download attachments",
    "attachments:write": "upload attachments",
    "messages:write": "send messages",
    "messages:delete": "delete any message",
    "companions:read": "read companions, including their prompts",
    "companions:write": "create, update and delete companions",
    "social:read": "read profiles, follows, posts and timelines",
    "social:write": "follow, post and like",
    "moderate": "list and resolve reports",
    "holds": "place chats under legal hold and read the copies",
    "operate": "read process state, audit findings and costs",
    "broadcast": "send one message to many users",
    "act_as": "act on behalf of any user",
}
REFUSED = "API key is invalid or revoked"
_KEY = re.compile(r"ck_([0-9a-z]{26})_([A-Za-z0-9_-]{43})")


class ApiKey(NamedTuple):
    """A parsed key, not verified yet."""

    id: str
    secret: str


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def format_key(key_id: str, secret: str) -> str:
    """Return the key as it is shown to its owner, once, after creation."""
    return f"ck_{key_id}_{secret}"


def parse_key(text: str) -> ApiKey:
    """Parse a key without verifying it.

    Raises:
        Unauthenticated: the text is not an API key.
    """
    match = _KEY.fullmatch(text) if len(text) <= 80 else None
    if match is None:
        raise Unauthenticated(REFUSED)
    return ApiKey(*match.groups())


def hash_secret(secret: str) -> str:
    """Return the digest that is stored instead of the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret(secret: str, digest: str) -> bool:
    """Return whether a secret matches the digest, in constant time."""
    return hmac.compare_digest(hash_secret(secret), digest)
