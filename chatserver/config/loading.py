"""Loads the settings of a process and reports all problems together."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator
from pydantic_settings import SettingsConfigDict

from chatserver.config.api import Auth
from chatserver.config.settings import Settings
from chatserver.config.sources import PREFIX, find_unknown_variables, list_variables
from chatserver.errors import ConfigError

_SECRET = "auth.secret (CHAT_AUTH_SECRET)"  # noqa: S105  # the name of a setting


class _SigningSettings(Settings):
    """The settings of a process that signs or verifies tokens."""

    model_config = SettingsConfigDict(validate_default=True)

    @field_validator("auth")
    @classmethod
    def _check_secret(cls, auth: Auth) -> Auth:
        if problem := _find_secret_problem(auth):
            raise ValueError(problem)
        return auth


def load_settings(*, requires_secret: bool = False, **overrides: Any) -> Settings:
    """Load the settings of this process.

    `overrides`: sections as mappings, for flags and tests; they have the highest precedence.
    `requires_secret`: the process signs or verifies tokens.

    Raises:
        ConfigError: the settings are invalid; `problems` lists every problem.
    """
    problems = find_unknown_variables(Settings)
    path = os.environ.get("CHAT_CONFIG")
    if path and not Path(path).is_file():
        problems.append(f"CHAT_CONFIG: there is no file {path}")
        raise ConfigError(problems)
    try:
        settings = (_SigningSettings if requires_secret else Settings)(**overrides)
    except ValidationError as exc:
        raise ConfigError([*problems, *_describe(exc)]) from None
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError([*problems, f"CHAT_CONFIG: {path} is not TOML: {exc}"]) from None
    except UnicodeDecodeError as exc:
        raise ConfigError([*problems, f"CHAT_CONFIG: {path} is not UTF-8: {exc}"]) from None
    if problems:
        raise ConfigError(problems)
    return settings


def _describe(failure: ValidationError) -> Iterator[str]:
    """Yield one problem per invalid setting, with the setting and its environment variable."""
    variables = {
        f"{section}.{name}": variable
        for variable, (section, name) in list_variables(Settings).items()
    }
    for error in failure.errors():
        name = ".".join(str(part) for part in error["loc"])
        detail = error["msg"].removeprefix("Value error, ").replace("Input should", "must")
        if detail.startswith(_SECRET):
            yield detail
            continue
        if error["type"] == "extra_forbidden":
            if f"{PREFIX}{name.replace('.', '_')}".upper() in os.environ:
                continue  # `find_unknown_variables` has reported this variable
            detail = "no such setting"
        setting = ".".join(name.split(".")[:2])
        if setting in variables:
            name += f" ({variables[setting]})"
        yield f"{name}: {detail[:1].lower()}{detail[1:]}" if name else detail


def check_secret(settings: Settings) -> None:
    """Check the signing key of a process that signs or verifies tokens.

    Raises:
        ConfigError: `auth.secret` is unset or shorter than 32 bytes.
    """
    if problem := _find_secret_problem(settings.auth):
        raise ConfigError([problem])


def _find_secret_problem(auth: Auth) -> str | None:
    if len(auth.secret.get_secret_value().encode()) >= 32:
        return None
    return f"{_SECRET}: must be at least 32 bytes; try: openssl rand -hex 32"
