"""Reserved user names: names that could be mistaken for staff or the service, in any spelling."""

from __future__ import annotations

from collections.abc import Iterable

RESERVED_NAMES = (
    *(
        "abuse",
        "admin",
        "administrator",
        "api",
        "billing",
        "bot",
        "chatserver",
        "contact",
        "everyone",
    ),
    *("help", "helpdesk", "hostmaster", "info", "mod", "moderator", "no-reply", "null", "official"),
    *("operator", "owner", "postmaster", "privacy", "root", "security", "service", "staff"),
    *("superuser", "support", "sysadmin", "system", "team", "undefined", "webmaster"),
)
# User names contain only a-z, 0-9, - and _ (see `parse_user_name`), so this table is complete.
_LOOKS_LIKE = str.maketrans("0134578", "oleastb", "-_")


def compute_skeleton(name: str) -> str:
    """Return a string that is the same for names that look alike, such as ``r00t`` and ``root``."""
    text = name.casefold().translate(_LOOKS_LIKE).replace("rn", "m").replace("vv", "w")
    return text.replace("i", "l")


class ReservedNames:
    """Names that cannot be registered."""

    def __init__(self, names: Iterable[str]) -> None:
        self._skeletons = frozenset(map(compute_skeleton, names))

    def __contains__(self, name: object) -> bool:
        """Return whether a name is reserved, or looks like a reserved one."""
        return isinstance(name, str) and compute_skeleton(name) in self._skeletons
