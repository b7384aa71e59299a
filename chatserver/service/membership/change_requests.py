"""Requests to change a group: their target users, settings and digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from chatserver.domain.text_validation import parse_name, parse_note
from chatserver.domain.write_restrictions import MUTE_OVER
from chatserver.errors import BadRequest
from chatserver.protocol import frames


def list_target_users(frame: frames.AnyChange) -> Sequence[str]:
    """Return the users that a request affects, except its sender."""
    match frame:
        case frames.Invite():
            return frame.users
        case (
            frames.Remove()
            | frames.SetRole()
            | frames.MuteMember()
            | frames.BanMember()
            | frames.UnbanMember()
        ):
            return [frame.user]
        case _:
            return []


def parse_settings(frame: frames.AnyChange) -> dict[str, str | int]:
    """Return the settings that a request changes. Raises BadRequest, TooLarge."""
    if not isinstance(frame, frames.UpdateChat):
        return {}
    settings: dict[str, str | int] = {}
    if frame.name is not None:
        settings["name"] = parse_name(frame.name)
    if frame.topic is not None:
        settings["topic"] = parse_note(frame.topic, "topic")
    if frame.picture is not None:
        settings["picture"] = frame.picture
    if frame.joining is not None:
        settings["joining"] = frame.joining
    if frame.history is not None:
        settings["history"] = frame.history
    if frame.slow_s is not None:
        settings["slow_s"] = frame.slow_s
    if frame.retention_s is not None:
        settings["retention_s"] = frame.retention_s
    if not settings:
        raise BadRequest(
            "at least one of name, topic, picture, joining, history, slow_s and retention_s is "
            "required"
        )
    return settings


def format_muted_until(until: int | None) -> int:
    """Return a mute entry's `muted_until` (Unix s): a past time if the member is unmuted."""
    return MUTE_OVER if until is None else until


def format_settings(frame: frames.AnyChange) -> str:
    """Return the body of an `update` entry: the settings except the name, as JSON."""
    settings = {name: value for name, value in parse_settings(frame).items() if name != "name"}
    return msgspec.json.encode(settings).decode() if settings else ""


def compute_request_digest(frame: frames.AnyChange) -> str:
    """Return a digest that is the same for requests with the same content."""
    content = msgspec.json.encode(msgspec.structs.replace(frame, id=0))
    return hashlib.blake2b(content, digest_size=8).hexdigest()
