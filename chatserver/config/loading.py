"""Loads the settings of a process and reports all problems together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from chatserver.config.auth import Auth
from chatserver.config.section import Section
from chatserver.config.settings import Settings, list_sections
from chatserver.config.sources import find_unknown_variables, list_variables, read_values
from chatserver.errors import ConfigError

_SECRET = "auth.secret (CHAT_AUTH_SECRET)"  # noqa: S105  # the name of a setting


class ReadSettings(NamedTuple):
    """Settings with defaults in place of invalid values.

    `problems`: all problems; `broken`: the names of the sections that have problems.
    """

    settings: Settings
    problems: list[str]
    broken: frozenset[str]


def load_settings(
    *, requires_secret: bool = False, **overrides: Mapping[str, Any] | Section
) -> Settings:
    """Load the settings of this process.

    `overrides`: sections or mappings, for flags and tests; they have the highest precedence.
    `requires_secret`: the process signs or verifies tokens.

    Raises:
        ConfigError: the settings are invalid; `problems` lists every problem.
    """
    settings, problems, _ = read_settings(requires_secret=requires_secret, **overrides)
    if problems:
        raise ConfigError(*problems)
    return settings


def read_settings(
    *, requires_secret: bool = False, **overrides: Mapping[str, Any] | Section
) -> ReadSettings:
    """Read the settings, with all their problems; see `load_settings`.

    Raises:
        ConfigError: a source cannot be read.
    """
    types, problems = list_sections(), find_unknown_variables()
    try:
        values = read_values({name: dict(section) for name, section in overrides.items()})
    except ConfigError as exc:
        raise ConfigError(*problems, *exc.problems) from None
    sections: dict[str, Any] = {}
    defaulted: dict[str, set[str]] = {}
    for name, section_type in types.items():
        reader = _SectionReader(name, values.get(name, {}))
        sections[name] = reader.read(section_type)
        problems += reader.problems
        if reader.problems:
            defaulted[name] = reader.defaulted
    problems += [f"{name}: no such setting" for name in values if name not in types]
    settings = Settings(**sections)
    replaced = {f"{section}.{name}" for section, names in defaulted.items() for name in names}
    problems += [text for text in settings.find_conflicts() if not _names_any(text, replaced)]
    if requires_secret and "secret" not in defaulted.get("auth", ()):
        problems += _find_secret_problems(settings.auth)
    return ReadSettings(settings, problems, frozenset(defaulted))


class _SectionReader:
    """Validates one section until all its problems are known, with defaults for invalid values."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.problems: list[str] = []
        self.defaulted: set[str] = set()
        self._name = name
        self._values = dict(values)

    def read(self, section_type: type[Section]) -> Section:
        while True:  # each pass removes a value or ends
            try:
                return section_type(**self._values)
            except ValidationError as exc:
                errors = exc.errors()
            if invalid := {str(error["loc"][0]) for error in errors if error["loc"]}:
                self.problems += filter(None, map(self._describe, errors))
                self.defaulted |= invalid
                for name in invalid:
                    del self._values[name]
            else:  # a conflict of valid values, or of valid values with defaults for invalid ones
                conflicts = [line for error in errors for line in _get_text(error).splitlines()]
                self.problems += [
                    f"{self._name}: {text}"
                    for text in conflicts
                    if not _names_any(text, self.defaulted)
                ]
                self.defaulted |= self._values.keys()
                return section_type()

    def _describe(self, error: ErrorDetails) -> str | None:
        """Return the problem of one setting, with its environment variable."""
        section, setting = self._name, str(error["loc"][0])
        name = ".".join([section, *(str(part) for part in error["loc"])])
        if error["type"] == "extra_forbidden":
            return f"{name}: no such setting"
        variables = {path: variable for variable, path in list_variables().items()}
        detail = _get_text(error)
        return f"{name} ({variables[section, setting]}): {detail[:1].lower()}{detail[1:]}"


def _get_text(error: ErrorDetails) -> str:
    return error["msg"].removeprefix("Value error, ").replace("Input should", "must")


def _names_any(text: str, names: set[str]) -> bool:
    """Return whether a problem names one of these settings."""
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)


def check_secret(settings: Settings) -> None:
    """Check the signing key of a process that signs or verifies tokens.

    Raises:
        ConfigError: `auth.secret` is unset or shorter than 32 bytes.
    """
    if problems := list(_find_secret_problems(settings.auth)):
        raise ConfigError(*problems)


def _find_secret_problems(auth: Auth) -> Iterator[str]:
    if len(auth.secret.get_secret_value().encode()) < 32:
        yield f"{_SECRET}: must be at least 32 bytes; try: openssl rand -hex 32"
