"""Demo users of `chatserver dev`."""

from __future__ import annotations

DEMO_USERS = ("alice", "bob", "carol")
ADMINS = ("alice",)
